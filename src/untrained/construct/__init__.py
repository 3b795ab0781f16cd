"""How is a ticket built by proof, rather than found by search?"""
