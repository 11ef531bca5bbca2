"""Act 2, decide: plan which bundles to move or split, and say why the others stay."""
