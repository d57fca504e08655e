"""A running model as the subject: any nn.Module, tested as it is, at its own sizes, by what it does.

making      from what the user pointed at (a class, a function, an expression, an instance) to modules
usage       what the user's own files show about how a class is constructed and called, read as syntax
collating   what the functions that make batches show of their shapes
in_place    a component that its model sets up, taken out of that model
lazy        sizes for layers that learn them from the first call
classmethods   classes that a classmethod of their own makes
calling     how forward is called, and which of its results is the answer
searching, fillers, beside    how that is found: the attempts, what they give, several inputs of different forms
kinds       what a model is meant to be, from evidence of intent
running     the model behind the protocol: numpy in and out
*_probes, pads, dropping, inside, losses, decoding, ...    families of experiments on it, each above those that it uses
model       a running model with all experiments, and how one is made of what the user pointed at
class_source    what is read off a class's source
record      one observed run: which module and which operation got what and gave what, from which line
flow        which element of one value is which element of another
attention, norms, stream    what the record says about the parts that every Transformer has
attention_findings, attention_scale, attention_masks    what is wrong with an attention, and at which line
attention_relative, place_vectors, experts, ctc    relative biases, position vectors, mixtures, speech
hiding      which line lets a model see padding or the future
mixing, feeding, statements    where rows first see each other, what a cached step is handed, which line of a statement
of_minigrad  a model on minigrad as a module of torch
mirror       a run of minigrad whose every op is one of torch's operations
variants    the same model made with its other options
conditions, hypotheses, results    what a writer hands forward, what it and forward give, taken apart
spelling    a tokenizer of the suite's own, for what writes behind a text
balance     the losses for the balance of experts
pair_losses, drawn_items, diffusing    losses of pairs, losses that draw false items, what a diffusion model adds
denoising   which noise the losses of a diffusion model add, and how much is left at each step of its samplers
mixed_losses, span_losses, several_labels    losses that mix samples, of spans, of labels of words and of their text
gaps, beside_words    series with gaps, and what stands beside the words of a text
forecasting, future_losses    what comes next in a series, and losses of that
best_paths  taggers that score paths of tags
looked_for, starts_told    what a constructor looks for by name, and by which numbers it starts it
told_by_file    what the text of a model's files shows by itself
row_methods methods beside forward that give each text a number or a vector
findings    the shape of a finding, and the claims that findings break
"""
