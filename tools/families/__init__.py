"""Every published family under the claims about whole models, ours on minigrad and the library's on torch.

rows       the models: a class of the library, what kind of model it is, small settings
sides      one row as two subjects with the same weights
answers    the claims that are asked of a row, both verdicts on each, and whether they agree
table      the page
"""
