"""The actions on users and tokens."""

from __future__ import annotations

from typing import Final

from peerd.domain.access import Right, Role
from peerd.domain.task import NAME_LIMIT
from peerd.operate.passwords import MAX_LENGTH, MIN_LENGTH
from peerd.web.pages.actions import ActionCall, ActionDone, FormField, PageAction
from peerd.web.pages.formats import one_line
from peerd.web.pages.subjects import Subject
from peerd.web.pages.task_actions import whole_number

ROLE: Final = FormField(
    name="role", label="Role", kind="choice", choices=tuple((role.value, role.value) for role in Role), is_required=True
)
PASSWORD: Final = FormField(
    name="password",
    label="Password",
    kind="password",
    most=MAX_LENGTH,
    hint=f"At least {MIN_LENGTH} characters.",
    autocomplete="new-password",
)


async def _add(call: ActionCall) -> ActionDone:
    name = call.text("name") or ""
    await call.client.users.add(name, call.values.get("role", ""), call.values.get("password") or None)
    return ActionDone(f"The user {one_line(name)} was added.", "/users")


async def _change_role(call: ActionCall) -> ActionDone:
    await call.client.users.change(call.key, role=call.values.get("role", ""))
    return ActionDone(f"{one_line(call.key)} is {call.values.get('role')} now. Its sessions have ended.", "/users")


async def _set_disabled(call: ActionCall, *, disabled: bool) -> ActionDone:
    await call.client.users.change(call.key, disabled=disabled)
    return ActionDone(f"{one_line(call.key)} is {'disabled' if disabled else 'enabled'}.", "/users")


async def _set_password(call: ActionCall) -> ActionDone:
    await call.client.users.set_password(call.key, call.values.get("password", ""))
    return ActionDone(f"The password of {one_line(call.key)} was set. Its sessions have ended.", "/users")


async def _remove(call: ActionCall) -> ActionDone:
    await call.client.users.remove(call.key)
    return ActionDone(f"The user {one_line(call.key)} was removed.", "/users")


async def _revoke(call: ActionCall) -> ActionDone:
    await call.client.tokens.revoke(whole_number("token", call.key))
    return ActionDone(f"Token {call.key} is revoked.", "/tokens")


USER_ACTIONS: Final = (
    PageAction(
        subject=Subject.USER,
        verb="add",
        creates=True,
        label="Add a user",
        run=_add,
        right=Right.ADMIN,
        fields=(FormField(name="name", label="Name", is_required=True, most=NAME_LIMIT), ROLE, PASSWORD),
        effect="The user logs in with this name and password.",
    ),
    PageAction(
        subject=Subject.USER,
        verb="role",
        label="Change the role",
        run=_change_role,
        right=Right.ADMIN,
        fields=(ROLE,),
        effect="{key} has other rights from now on. Its sessions end.",
    ),
    PageAction(
        subject=Subject.USER,
        verb="password",
        label="Set the password",
        run=_set_password,
        right=Right.ADMIN,
        fields=(PASSWORD,),
        effect="{key} logs in with another password from now on. Its sessions end.",
    ),
    PageAction(
        subject=Subject.USER,
        verb="disable",
        label="Disable",
        run=lambda call: _set_disabled(call, disabled=True),
        right=Right.ADMIN,
        effect="{key} can log in no more. Its sessions end.",
    ),
    PageAction(
        subject=Subject.USER,
        verb="enable",
        label="Enable",
        run=lambda call: _set_disabled(call, disabled=False),
        right=Right.ADMIN,
        effect="{key} can log in again.",
    ),
    PageAction(
        subject=Subject.USER,
        verb="remove",
        label="Remove",
        run=_remove,
        right=Right.ADMIN,
        is_destructive=True,
        effect="The user {key} is removed. What the audit log has about it stays.",
    ),
)
TOKEN_ACTIONS: Final = (
    PageAction(
        subject=Subject.TOKEN,
        verb="revoke",
        label="Revoke",
        run=_revoke,
        right=Right.ADMIN,
        is_destructive=True,
        effect="Programs that send token {key} are refused at once.",
    ),
)
ACCESS_ACTIONS: Final = (*USER_ACTIONS, *TOKEN_ACTIONS)
