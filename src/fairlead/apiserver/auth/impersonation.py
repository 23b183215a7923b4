"""Who may impersonate whom: Kubernetes' two ways, the constrained one by request and the old one by user.

Constrained: leave to do *this* while being another (`impersonate-on:<mode>:<verb>` on what is asked for) and leave to
be that other (`impersonate:<mode>`). Old: leave to be that other (`impersonate`), whatever is then done. Whoever has
neither gets the answer of the way that last worked for them, else of the first.
"""

import re
from dataclasses import replace
from typing import Final
from urllib.parse import unquote

from multidict import CIMultiDictProxy

from fairlead.apiserver.auth.rbac import Action, Rbac
from fairlead.apiserver.failures import Failure, bad_request, forbidden
from fairlead.apiserver.request.info import User, is_text
from fairlead.apiserver.validation import names

MOST_REMEMBERED: Final = 1024
_AUTHENTICATION: Final = "authentication.k8s.io"
_ACCOUNT: Final = re.compile(r"system:serviceaccount:([^:]+):([^:]+)")
_NODE: Final = "system:node:"
_OLD: Final = ""
_EXTRA: Final = "impersonate-extra-"


class Identity(User):
    """The user to impersonate, from the Impersonate- headers."""

    __slots__ = ()

    @property
    def node(self) -> str:
        name = self.name.removeprefix(_NODE)
        return name if self.name.startswith(_NODE) and not names.subdomain(name) else ""

    @property
    def account(self) -> tuple[str, str] | None:
        found = _ACCOUNT.fullmatch(self.name)
        return None if found is None else (found[1], found[2])

    @property
    def is_only_a_name(self) -> bool:
        return not self.uid and not self.groups and not self.extra


def identity_of(headers: "CIMultiDictProxy[str]") -> Identity | None:
    """The user that the Impersonate- headers of a request name; None where there are none."""
    if any(name.lower().startswith("impersonate-") and not is_text(value) for name, value in headers.items()):
        raise bad_request("the Impersonate- headers must be UTF-8")
    name, uid = headers.get("Impersonate-User", ""), headers.get("Impersonate-Uid", "")
    groups = tuple(headers.getall("Impersonate-Group", ()))
    extra = {
        unquote(key.lower()[len(_EXTRA) :]): tuple(headers.getall(key))
        for key in headers
        if key.lower().startswith(_EXTRA)
    }
    if name:
        return Identity(name, uid, groups, extra)
    if groups or uid or extra:
        groups_text = "nil" if not groups else "{" + ", ".join(f'"{group}"' for group in groups) + "}"
        raise bad_request(
            f'requested &user.DefaultInfo{{Name:"", UID:"{uid}", Groups:[]string{groups_text}, '
            "Extra:map[string][]string(nil)} without impersonating a user name"
        )
    return None


class Impersonation:
    def __init__(self, rbac: Rbac) -> None:
        self._rbac = rbac
        self._worked: dict[str, str] = {}

    def become(self, asker: User, identity: Identity, action: Action) -> User:
        """The user to go on as, or the refusal."""
        known = self._worked.get(asker.name)
        modes = [*([] if known is None else [known]), *(mode for mode in _modes(identity) if mode != known)]
        refusal: Failure | None = None
        for mode in modes:
            if mode != _OLD and mode not in _modes(identity):
                continue
            found = self._refused(asker, identity, action, mode)
            if found is None:
                if len(self._worked) >= MOST_REMEMBERED:
                    self._worked.clear()
                self._worked[asker.name] = mode
                return _become(identity, mode)
            refusal = refusal or found
        assert refusal is not None
        raise refusal

    def _refused(self, asker: User, identity: Identity, action: Action, mode: str) -> Failure | None:
        if mode != _OLD:
            on = replace(action, verb=f"impersonate-on:{mode}:{action.verb}")
            if not self._rbac.allows(asker, on):
                return refusal(asker, on)
            if "system:masters" in identity.groups:
                check = Action(f"impersonate:{mode}", _AUTHENTICATION, "groups", name="system:masters")
                return refusal(asker, check, "impersonating the system:masters group is not allowed")
        for check in _checks(identity, mode):
            if not self._rbac.allows(asker, check):
                return refusal(asker, check)
        return None


def refusal(user: User, action: Action, more: str = "") -> Failure:
    more = f": {more}" if more else ""
    if action.path:
        why = f'User "{user.name}" cannot {action.verb} path "{action.path}"{more}'
        return Failure(403, "Forbidden", f"forbidden: {why}", {})
    why = f'User "{user.name}" cannot {action.verb} resource "{action.called}" in API group "{action.group}"'
    why += f' in the namespace "{action.namespace}"' if action.namespace else " at the cluster scope"
    return forbidden(action.group, action.resource, action.name, why + more)


def _modes(identity: Identity) -> list[str]:
    if identity.node:
        return ["arbitrary-node", _OLD] if identity.is_only_a_name else [_OLD]
    if identity.account is not None:
        return ["serviceaccount", _OLD] if identity.is_only_a_name else [_OLD]
    return ["user-info", _OLD]


def _checks(identity: Identity, mode: str) -> list[Action]:
    verb, group = (f"impersonate:{mode}", _AUTHENTICATION) if mode != _OLD else ("impersonate", "")
    if identity.account is not None:
        space, name = identity.account
        checks = [Action(verb, group, "serviceaccounts", name=name, namespace=space)]
    elif identity.node and mode != _OLD:
        checks = [Action(verb, group, "nodes", name=identity.node)]
    else:
        checks = [Action(verb, group, "users", name=identity.name)]
    if identity.uid:
        checks.append(Action(verb, _AUTHENTICATION, "uids", name=identity.uid))
    checks += [Action(verb, group, "groups", name=each) for each in identity.groups]
    for key, values in identity.extra.items():
        checks += [Action(verb, _AUTHENTICATION, "userextras", key, value) for value in values]
    return checks


def _become(identity: Identity, mode: str) -> User:
    groups = identity.groups
    if identity.account is not None and not groups:
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{identity.account[0]}")
    elif identity.node and mode != _OLD:
        groups = ("system:nodes",)
    everybody: tuple[str, ...] = ("system:authenticated",)
    if identity.name == "system:anonymous":
        everybody = ("system:unauthenticated",)
    elif "system:unauthenticated" in groups:
        everybody = ()
    return User(identity.name, identity.uid, tuple(dict.fromkeys((*groups, *everybody))), identity.extra)
