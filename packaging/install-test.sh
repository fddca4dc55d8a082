#!/bin/sh
# Installs, upgrades, removes and purges the package under a running systemd, as a person would.
# `cargo xtask package --test` boots a clean root with this as its one task, and reads the last line
# of what it prints. It gets two packages in /install-test: old.deb, and new.deb of a higher version.
set -eu

fail() {
    echo "install-test: FAILED: $*"
    systemctl --no-pager --full status stratakv || true
    journalctl --no-pager --lines 40 --unit stratakv || true
    exit 1
}
step() {
    echo "install-test: $*"
}
# Waits for up to a minute until the command succeeds.
eventually() {
    tries=0
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ "$tries" -lt 240 ] || fail "not within a minute: $*"
        sleep 0.25
    done
}
state_is() {
    [ "$(systemctl show --property "$1" --value stratakv)" = "$2" ]
}
has_version() {
    [ "$(dpkg-query --show --showformat '${Version}' stratakv)" = "$1" ]
}

export DEBIAN_FRONTEND=noninteractive
server="--server 127.0.0.1:11211"
options=/etc/stratakv/stratakv.toml
data=/var/lib/stratakv
old_version=$(dpkg-deb --field /install-test/old.deb Version)
new_version=$(dpkg-deb --field /install-test/new.deb Version)
dpkg --compare-versions "$old_version" lt "$new_version" || fail "$old_version is not older than $new_version"

step "install $old_version"
dpkg --install /install-test/old.deb || fail "the package does not install"
has_version "$old_version" || fail "another version is installed"
getent passwd stratakv >/dev/null || fail "there is no user stratakv"
systemctl is-enabled --quiet stratakv || fail "the unit is not enabled"
eventually systemctl is-active --quiet stratakv
state_is StatusText serving || fail "systemd was not told that clients are served"
[ "$(stat --format %U:%a "$data")" = stratakv:750 ] || fail "$data is $(stat --format %U:%a "$data")"

step "the unit is in order"
systemd-analyze verify --man=no /lib/systemd/system/stratakv.service || fail "systemd-analyze verify complains"
systemd-analyze security --no-pager --threshold=25 stratakv >/install-test/security ||
    fail "the unit is exposed more than 2.5 of 10: $(tail -n 1 /install-test/security)"
tail -n 1 /install-test/security

step "write, restart, read"
stratakv put $server user:1 Ada
systemctl restart stratakv
eventually systemctl is-active --quiet stratakv
[ "$(stratakv get $server user:1)" = Ada ] || fail "a restart lost a record"
engine=$(journalctl --unit stratakv --output cat | grep -E '^engine ' | tail -n 1)
echo "$engine"
echo "$engine" | grep -q io_uring || fail "the unit keeps io_uring from the server"
pid=$(systemctl show --property MainPID --value stratakv)
grep -q '^CapEff:[[:space:]]*0*$' "/proc/$pid/status" || fail "the server has capabilities"
# Where this whole container may not raise the limit, the server has what there is.
[ "$(systemctl show --property LimitMEMLOCK --value stratakv)" = infinity ] || fail "the unit limits locked memory"
grep -q '^Max locked memory *unlimited' "/proc/$pid/limits" ||
    [ "$(grep '^Max locked' "/proc/$pid/limits")" = "$(grep '^Max locked' /proc/1/limits)" ] ||
    fail "LimitMEMLOCK has no effect: $(grep '^Max locked' "/proc/$pid/limits")"

step "options: reload, health, a wrong line"
printf '\nadmin = "127.0.0.1:9101"\nslow-log-ms = 500\n' >>"$options"
systemctl restart stratakv
eventually stratakv health
sed -i 's/^slow-log-ms = 500/slow-log-ms = 50/' "$options"
systemctl reload stratakv
eventually state_is StatusText serving
[ "$(systemctl show --property MainPID --value stratakv)" != "$pid" ] || fail "it was not restarted"
pid=$(systemctl show --property MainPID --value stratakv)
echo 'memroy = "1G"' >>"$options"
systemctl restart stratakv 2>/dev/null || true
eventually state_is ActiveState failed
journalctl --unit stratakv --output cat | grep -q 'is it `memory`' || fail "a wrong option is not told"
sed -i '/^memroy/d' "$options"
systemctl reset-failed stratakv
systemctl start stratakv

step "kill -9: systemd starts it again, nothing is lost"
stratakv put $server user:2 Grace
pid=$(systemctl show --property MainPID --value stratakv)
kill -9 "$pid"
eventually stratakv get $server user:2
[ "$(systemctl show --property MainPID --value stratakv)" != "$pid" ] || fail "the killed process lives"

step "watchdog: a process that stands still is replaced"
mkdir -p /run/systemd/system/stratakv.service.d
printf '[Service]\nWatchdogSec=2\n' >/run/systemd/system/stratakv.service.d/install-test.conf
systemctl daemon-reload
systemctl restart stratakv
eventually systemctl is-active --quiet stratakv
pid=$(systemctl show --property MainPID --value stratakv)
sleep 5
[ "$(systemctl show --property MainPID --value stratakv)" = "$pid" ] || fail "a healthy server was replaced"
kill -STOP "$pid"
eventually sh -c "[ ! -d /proc/$pid ]"
eventually stratakv get $server user:2
rm /run/systemd/system/stratakv.service.d/install-test.conf
systemctl daemon-reload

step "upgrade to $new_version"
before=$(systemctl show --property MainPID --value stratakv)
dpkg --install --force-confdef --force-confold /install-test/new.deb || fail "the upgrade fails"
has_version "$new_version" || fail "another version is installed"
eventually systemctl is-active --quiet stratakv
[ "$(systemctl show --property MainPID --value stratakv)" != "$before" ] || fail "the old process still serves"
[ "$(stratakv get $server user:1)$(stratakv get $server user:2)" = AdaGrace ] || fail "the upgrade lost records"
grep -q '^slow-log-ms = 50$' "$options" || fail "the upgrade overwrote the options"

step "remove keeps options and data"
dpkg --remove stratakv
! systemctl is-active --quiet stratakv || fail "it still serves"
[ ! -e /usr/bin/stratakv ] || fail "the program is still there"
[ -f "$options" ] && [ -d "$data/data" ] || fail "remove took options or data"
dpkg --install /install-test/new.deb
eventually systemctl is-active --quiet stratakv
[ "$(stratakv get $server user:1)" = Ada ] || fail "installed again, a record is gone"

step "purge removes options and data, and nothing else"
echo mine >/var/lib/mine
dpkg --purge stratakv
[ ! -e /etc/stratakv ] && [ ! -e "$data" ] || fail "purge left $(ls -d /etc/stratakv "$data" 2>/dev/null)"
[ -f /var/lib/mine ] || fail "purge took what is not its own"
[ -z "$(find / -xdev -name '*stratakv*' -not -path '/install-test/*' -not -path '/proc/*' -not -path '/var/log/*' \
    -not -path '/var/lib/systemd/*' -not -path '/var/cache/*' 2>/dev/null | tee /install-test/left)" ] ||
    fail "purge left $(cat /install-test/left)"

step "purge leaves a link's data"
mkdir -p /srv/elsewhere
echo precious >/srv/elsewhere/file
ln -s /srv/elsewhere "$data"
dpkg --install /install-test/new.deb >/dev/null 2>&1 || true
dpkg --purge stratakv
[ -f /srv/elsewhere/file ] || fail "purge followed a link"

step "PASSED"
