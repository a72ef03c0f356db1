"""The joint surface R(C, n, B_p): data -> model -> posterior -> surface -> what it is asked for -> method."""
