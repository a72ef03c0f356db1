"""The joint surface R(C, n, B_p): data -> model -> posterior -> surface -> odds, curves, passport -> method."""
