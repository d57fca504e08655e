"""Mistakes that the text of a file shows by itself, in a model's file as in a training script.

slip        what a slip is, and how rules read a file
orders      what stands in another order or place than it should
axes        the axes of tensors: heads and their masks, shapes, grids, sides of boxes
grids       neighbours, shifts, rows that are folded into the batch, runs and spans
futures     causal masks, and how attention reads them
labels      labels behind a mask, ends as padding, penalties for repetition
ends        where rows end and where their places begin
steps       steps in time: returns to go, the newest of a history, stretches and windows
data        what goes into a model, and what is made of its answers
beams       the scores of a beam search, what is drawn behind a draft
idle        what is made and never read, or left out in writing: masks, parts of batches, tables
batches     how rows become batches: changes, flips, orders, labels, trainers
rows        single rows: copies, sets, rows of one item, repeats
parts       which rows are in which part of the data
borders     where one part ends and the next one begins
fitting     what is fitted or counted, and with which rows
results     what is made of answers: counts, gains, orders that are undone
losses      cross-entropies of shares, focal losses, z-terms
retrieval   searches: temperatures, candidates, pools, reciprocal ranks
judging     what judges a model, and what chooses its states
measures    what is measured: errors, ranks, unions, tables of counts
bits        perplexities and bits: their logarithms, and what they are divided by
training    training loops: gradients, clipping, what is kept, schedules, seeds
states      what is loaded of saved weights and merged into them, averages, scales that nothing learns

A rule takes the syntax tree of a file and gives `(what is written, its node)`; nothing is run. A `Slip` is a rule with
what is said of it, of a model as of a script.
"""
