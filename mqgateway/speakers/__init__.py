"""One shape for the clients of all protocols, a module each; `table.py` names them."""
