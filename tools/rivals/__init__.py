"""The suite beside its rivals: the same models and the same mistakes in them, and which of them each method finds."""
