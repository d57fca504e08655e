"""Pictures of graphs: text listings and graphviz."""
