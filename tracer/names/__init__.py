"""Names and objects that a traced function reads from outside: resolver, proxies, guards."""
