"""How fast mqgateway is on this machine, beside a bare Twisted responder: `python -m bench`."""
