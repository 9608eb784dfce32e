-- A storage that refuses late writes: PostgreSQL. `fence` is lease.fence.

create table if not exists account (
    name text primary key,
    balance bigint not null,
    fence bigint not null default 0
);

-- As a statement of the program:
--
--     update account set balance = %(balance)s, fence = %(fence)s
--     where name = %(name)s and fence <= %(fence)s
--
-- and the count of changed rows says whether it was taken. At READ COMMITTED, the
-- default, two of them that meet wait for each other, and the second looks at the row
-- again. For rows that may not exist yet, or several tables, as a function; it is true
-- where the write was taken:

create or replace function write_account(who text, amount bigint, number bigint)
returns boolean language plpgsql as $$
begin
    insert into account (name, balance, fence) values (who, amount, number)
    on conflict (name) do update set balance = amount, fence = number
    where account.fence <= number;
    return found;
end
$$;
