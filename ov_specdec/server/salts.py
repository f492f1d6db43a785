"""Namespaces of cached prefixes."""


def join_salt(tenant: str | None, salt: str | None) -> str | None:
    """The namespace of a request's cached prefixes: its salt, within its tenant.

    A salt thus separates requests of one tenant, and gives no access to another tenant's prefixes.
    """
    if tenant is None:
        return salt
    return tenant if salt is None else f"{tenant}/{salt}"
