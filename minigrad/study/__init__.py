"""Tools to study a computation.

explain       an op, or a tensor's history, in words and on numbers
watching, step_file   a backward pass step by step
find_nan      the first op that made a NaN or an infinity
gradflow      sizes of values and gradients, parameter by parameter
gradcheck, gradgradcheck   gradients against differences
"""

from minigrad.study.explain import explain
from minigrad.study.gradcheck import gradcheck, gradgradcheck
from minigrad.study.gradflow import gradflow
from minigrad.study.nan import NotFinite, find_nan
from minigrad.study.step import step_file, watching
