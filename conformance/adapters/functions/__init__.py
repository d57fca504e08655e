"""Plain functions of a file, and losses and schedules written as classes, in the roles that they play.

    roles          which role a name and its parameters propose
    arguments      what each parameter means; how such a function is called
    subjects       what all roles share: `Served`, the subject, the words of the file around a function
    attention, masks, losses, schedules, decoding, sampling, tensors
                   one room for each family of roles: its conventions are found by running the function
    models         losses that take the model
    implementation what `--impl file.py:function` gives

A name proposes; running decides. A convention is one of a short list in which correct code differs. What is no
convention of correct code is never adopted: the function is then run in the most usual one, and its claims fail.
"""
