"""The zoo: public Transformers that nobody wrote for this suite, and what it says of them: `python -m tools.zoo`.

syntax: the classes and functions of a checkout, and who refers to whom. listing: the rule that chooses entries.
table: the repositories, their parts, their entries. trial: one run of one entry, and whether it was reached.
figures: the table in Markdown. None of the repositories' code is kept here.
"""
