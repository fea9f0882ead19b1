"""The command `mqgateway`: send, receive and watch from a shell."""
