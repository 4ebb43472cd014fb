/** A link to an account. A long id is cut off; it is whole in the title, and while it has the focus. */
import { Link, pathTo } from "../shared/router.tsx";

export function AccountLink({ id }: { id: string }) {
  return (
    <span class="id" title={id}>
      <Link to={pathTo("accounts", id)}>{id}</Link>
    </span>
  );
}
