"""Tables that ship with the library."""
