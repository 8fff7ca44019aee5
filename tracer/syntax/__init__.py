"""The syntax of the user's functions: their source, proved to be that of their code, with control flow as calls of operators."""
