"""The commands of the command line, a module for those of one kind; `__main__` calls them."""
