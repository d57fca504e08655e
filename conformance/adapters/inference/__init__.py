"""How the layout and conventions of an unknown nn.Module are found out.

Names propose and numbers decide: constructors, calls and parameters are read by the names that the field uses,
and what they propose is confirmed by running the module against the documents' formulas.

    facts       what was found, with its evidence; `Unresolved` when nothing can be guessed
    names       what names mean: the tables of names.toml
    construct   options by the names of constructor parameters, and config objects
    calls       inputs by the names of forward's parameters; outputs by their shapes
    masks       which mask convention and shapes a module takes, by probing
    parameters  where the role's parameters are stored, by name and shape
    stacks      the same for layers and whole models
    roles       which role a class plays
    subjects    the role's subject around the module
    parts       the components of a whole model, constructed through it
    resolution  what is inferred of one class, and how a subject is built from it
    fit         the layout by numbers; known mistakes where none fits
    networks, attention, layers, positions, models    what is found out about those
    resolve     the whole inference of one class
"""
