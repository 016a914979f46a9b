# MariaDB at the address of its pod, with the variables of the images of MariaDB and MySQL: MARIADB_ROOT_PASSWORD, MARIADB_USER, MARIADB_PASSWORD,
# MARIADB_DATABASE, or MYSQL_ instead of MARIADB_. The cluster has a template made (KUBEWRIGHT_NEW_TEMPLATE) before the first pod starts, and the folders of pods
# are copies of that (KUBEWRIGHT_TEMPLATE).
set -eu
umask 077
case "${1-}" in
mariadbd | mysqld) shift ;;
-*) ;;
"") ;;
*) exec "$@" ;;
esac
root=${MARIADB_ROOT_PASSWORD-${MYSQL_ROOT_PASSWORD-}}
user=${MARIADB_USER-${MYSQL_USER-}}
password=${MARIADB_PASSWORD-${MYSQL_PASSWORD-}}
database=${MARIADB_DATABASE-${MYSQL_DATABASE-}}
# A text in quotes: no backslash and no quote in it means anything.
text() { printf "'%s'" "$(printf %s "$1" | sed "s/\\\\/\\\\\\\\/g; s/'/''/g")"; }
# A name in quotes.
name() { printf '`%s`' "$(printf %s "$1" | sed 's/`/``/g')"; }
# Not echo, to which backslashes mean something.
say() { printf '%s\n' "$1"; }
init() {
	mariadb-install-db --no-defaults --datadir="$1" --auth-root-authentication-method=normal --skip-test-db --skip-name-resolve >&2
}
if [ -n "${KUBEWRIGHT_NEW_TEMPLATE-}" ]; then
	init "$KUBEWRIGHT_NEW_TEMPLATE"
	exit
fi
mkdir -p "$DATADIR"
if [ ! -d "$DATADIR/mysql" ]; then
	if [ -z "$root" ]; then
		echo "Error: the database is uninitialized and has no password: set MARIADB_ROOT_PASSWORD or MYSQL_ROOT_PASSWORD" >&2
		exit 1
	fi
	if [ -n "${KUBEWRIGHT_TEMPLATE-}" ]; then cp -R "$KUBEWRIGHT_TEMPLATE/." "$DATADIR/"; else init "$DATADIR"; fi
	{
		say "FLUSH PRIVILEGES;"
		say "DELETE FROM mysql.global_priv WHERE User = '' OR User = 'root' AND Host <> 'localhost';"
		say "FLUSH PRIVILEGES;"
		say "ALTER USER 'root'@'localhost' IDENTIFIED BY $(text "$root");"
		say "CREATE USER 'root'@'%' IDENTIFIED BY $(text "$root");"
		say "GRANT ALL ON *.* TO 'root'@'%' WITH GRANT OPTION;"
		if [ -n "$database" ]; then say "CREATE DATABASE $(name "$database");"; fi
		if [ -n "$user" ] && [ "$user" != root ]; then
			say "CREATE USER $(text "$user")@'%' IDENTIFIED BY $(text "$password");"
			if [ -n "$database" ]; then say "GRANT ALL ON $(name "$database").* TO $(text "$user")@'%';"; fi
		fi
		say "FLUSH PRIVILEGES;"
	} | mariadbd --no-defaults --bootstrap --datadir="$DATADIR" --skip-name-resolve >&2
fi
exec mariadbd --no-defaults --datadir="$DATADIR" --bind-address="$KUBEWRIGHT_POD_IP" --port=3306 --skip-name-resolve \
	--socket="$KUBEWRIGHT_RUN/mysqld.sock" --pid-file="$KUBEWRIGHT_RUN/mysqld.pid" --tmpdir="${TMPDIR:-/tmp}" "$@"
