"""Tools to study a computation: numeric gradient checks."""

from minigrad.study.gradcheck import gradcheck, gradgradcheck
