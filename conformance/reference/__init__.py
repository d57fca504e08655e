"""The formulas of the documents in plain float64 numpy, a module a topic: what checks expect."""
