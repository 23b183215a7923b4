"""The structs every room shares: frozen structs decoded once at the border. No arrays, no I/O."""
