"""Who shares cached prefixes with whom."""


def join_salt(tenant: str | None, salt: str | None) -> str | None:
    """The namespace that a request caches its prefixes in: of its tenant, and in it of its salt.

    So a salt parts the requests of one tenant, and opens nothing of another's.
    """
    if tenant is None:
        return salt
    return tenant if salt is None else f"{tenant}/{salt}"
