"""The actions on users and tokens."""

from __future__ import annotations

from typing import Final

from peerd.domain.access import Role
from peerd.domain.task import NAME_LIMIT
from peerd.operate.passwords import MAX_LENGTH, MIN_LENGTH
from peerd.web.pages.actions import FormField, PageAction

ROLE: Final = FormField(
    "role", "Role", kind="choice", choices=tuple((role.value, role.value) for role in Role), is_required=True
)
PASSWORD: Final = FormField(
    "password",
    "Password",
    kind="password",
    most=MAX_LENGTH,
    hint=f"At least {MIN_LENGTH} characters.",
    autocomplete="new-password",
)

ACCESS_ACTIONS: Final = (
    PageAction(
        "users.add",
        "Add a user",
        effect="The user logs in with this name and password.",
        fields=(FormField("name", "Name", is_required=True, most=NAME_LIMIT), ROLE, PASSWORD),
        notice="The user {name} was added.",
        leads_to="/users",
        creates=True,
    ),
    PageAction(
        "users.role",
        "Change the role",
        effect="{key} has other rights from now on. Its sessions end.",
        operation="users.change",
        fields=(ROLE,),
        notice="{key} is {role} now. Its sessions have ended.",
        leads_to="/users",
    ),
    PageAction(
        "users.password",
        "Set the password",
        effect="{key} logs in with another password from now on. Its sessions end.",
        operation="users.set_password",
        fields=(PASSWORD,),
        arguments={"password": ""},
        notice="The password of {key} was set. Its sessions have ended.",
        leads_to="/users",
    ),
    PageAction(
        "users.disable",
        "Disable",
        effect="{key} can log in no more. Its sessions end.",
        operation="users.change",
        arguments={"disabled": True},
        notice="{key} is disabled.",
        leads_to="/users",
    ),
    PageAction(
        "users.enable",
        "Enable",
        effect="{key} can log in again.",
        operation="users.change",
        arguments={"disabled": False},
        notice="{key} is enabled.",
        leads_to="/users",
    ),
    PageAction(
        "users.remove",
        "Remove",
        effect="The user {key} is removed. What the audit log has about it stays.",
        notice="The user {key} was removed.",
        leads_to="/users",
        is_destructive=True,
    ),
    PageAction(
        "tokens.revoke",
        "Revoke",
        effect="Programs that send token {key} are refused at once.",
        notice="Token {key} is revoked.",
        leads_to="/tokens",
        is_destructive=True,
    ),
)
