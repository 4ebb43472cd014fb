/** Links to an account. A long name is cut off; it is whole in the title, and while it has the focus. */
import { Link, pathTo } from "../shared/router.tsx";

export function AccountLink({ id, name = id }: { id: string; name?: string | null }) {
  return (
    <span class="id" title={name ?? id}>
      <Link to={pathTo("accounts", id)}>{name ?? id}</Link>
    </span>
  );
}

/** In tables. A row without an account has none. */
export function accountCell({ account }: { account: string | null }) {
  return account !== null && <AccountLink id={account} />;
}
