# PostgreSQL at the address of its pod, with the variables of the image that everybody knows: POSTGRES_PASSWORD, POSTGRES_USER,
# POSTGRES_DB, POSTGRES_HOST_AUTH_METHOD, PGDATA, and the scripts in /docker-entrypoint-initdb.d. initdb takes long, so the cluster has it make
# a template (KUBEWRIGHT_NEW_TEMPLATE) before the first pod starts, and the folders of pods are copies of that (KUBEWRIGHT_TEMPLATE).
set -eu
umask 077
case "${1-}" in
postgres) shift ;;
-*) ;;
"") ;;
*) exec "$@" ;;
esac
user=${POSTGRES_USER:-postgres}
method=${POSTGRES_HOST_AUTH_METHOD:-scram-sha-256}
password=${POSTGRES_PASSWORD-}
if [ -n "${POSTGRES_PASSWORD_FILE-}" ]; then password=$(cat "$POSTGRES_PASSWORD_FILE"); fi
init() { initdb --pgdata "$1" --username "$user" --auth trust --encoding UTF8 --no-locale --no-sync >&2; }
if [ -n "${KUBEWRIGHT_NEW_TEMPLATE-}" ]; then
	init "$KUBEWRIGHT_NEW_TEMPLATE"
	exit
fi
mkdir -p "$PGDATA"
chmod 700 "$PGDATA" 2>/dev/null || true
if [ ! -s "$PGDATA/PG_VERSION" ]; then
	if [ -z "$password" ] && [ "$method" != trust ]; then
		echo "Error: Database is uninitialized and superuser password is not specified: set POSTGRES_PASSWORD" >&2
		exit 1
	fi
	# The mask gives the copies the modes that a database wants.
	if [ -n "${KUBEWRIGHT_TEMPLATE-}" ]; then cp -R "$KUBEWRIGHT_TEMPLATE/." "$PGDATA/"; else init "$PGDATA"; fi
	printf '\nhost all all all %s\n' "$method" >>"$PGDATA/pg_hba.conf"
	sed -i '/^host.*trust$/d' "$PGDATA/pg_hba.conf"
	if [ "$method" = trust ]; then printf 'host all all all trust\n' >>"$PGDATA/pg_hba.conf"; fi
	{
		if [ -n "$password" ]; then
			printf "ALTER USER \"%s\" PASSWORD '%s'\n" "$user" "$(printf %s "$password" | sed "s/'/''/g")"
		fi
		if [ "${POSTGRES_DB:-$user}" != postgres ]; then printf 'CREATE DATABASE "%s"\n' "${POSTGRES_DB:-$user}"; fi
	} | postgres --single -D "$PGDATA" -c fsync=off postgres >/dev/null
	scripts=$KUBEWRIGHT_ROOT/docker-entrypoint-initdb.d
	if [ -n "$(ls -A "$scripts" 2>/dev/null)" ]; then
		pg_ctl -D "$PGDATA" -w -o "-c listen_addresses='' -c unix_socket_directories='$KUBEWRIGHT_RUN'" start >&2
		for script in "$scripts"/*; do
			case "$script" in
			*.sh) . "$script" ;;
			*.sql) psql -v ON_ERROR_STOP=1 -U "$user" -d "${POSTGRES_DB:-$user}" -f "$script" >&2 ;;
			*) echo "ignored: $script" >&2 ;;
			esac
		done
		pg_ctl -D "$PGDATA" -m fast -w stop >&2
	fi
fi
rm -f "$PGDATA/postmaster.pid"
exec postgres -D "$PGDATA" -c listen_addresses="$KUBEWRIGHT_POD_IP" -c port="${PGPORT:-5432}" \
	-c unix_socket_directories="$KUBEWRIGHT_RUN" "$@"
