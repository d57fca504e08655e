"""Many implementations graded like one run: `grade`, `reward`, and what `conformance grade` is made of.

    submissions   what is to be graded: folders, globs, lists
    archive       the files of a submission, as they travel
    warm          the process that has imported everything once, and forks for each submission
    hosts         the suite's end of such processes
    work          one submission graded, wherever a worker runs
    run           many: the store asked first, the rest given to an executor, nothing lost or doubled
    local         the executor of one machine
    store         the results: SQLite
    rubric        points, with reasons
    cheats        what the code does that a solution has no need of
    reward        a number in [0, 1] for learning programs
    progress      how far it is, on the terminal
    cluster       workers on other machines
    page          all results in one file for a browser

Importing this package imports nothing heavy.
"""
