"""Functions that stand beside a model in its file: batches, pooling, losses, schedules, metrics, decoding.

    trial          what a kind of helper is (`helper`), and how one is called
    acting         what does more than compute, and is not called
    examining      which functions of a file are helpers, and what is wrong with them
    mending        the one edit of a function that keeps the claim: its line and its text
    texts, collating, answering, windows, pooling, losses, routing, metrics, scheduling, images, boxes, decoding, norms,
                   recommending, holding_out, hidden_spans, tagging, masked_softmax, weighting, overlaps
                   the kinds, by subject
    tokenizing     classes and functions that turn texts into ids: run on short texts and on long ones
    training       functions that train a model: called on tiny data, and watched

A name and the names of the parameters say what a function shall be; what it does is then judged. A function that
cannot be called as its kind is called is left alone.
"""
