"""Mistakes that the text of a file shows by itself, in a model's file as in a training script.

slip        what a slip is, and how rules read a file
orders      what stands in another order or place than it should
data        what goes into a model, and what is made of its answers
parts       which rows are in which part of the data, and what is fitted to them
results     what is made of answers: counts, gains, orders that are undone
training    training loops: gradients, clipping, schedules, what is kept

A rule takes the syntax tree of a file and gives `(what is written, its node)`; nothing is run. A `Slip` is a rule with
what is said of it, of a model as of a script.
"""
