// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/test/testutil"
)

// docHost is a server with a device eth0 (192.0.2.1), a web server on port 80, and an SSH server on port 22. The web server also serves the files in
// the directory www at 203.0.113.80. A client (203.0.113.5 and 198.51.100.7) is at the other end of the cable.
type docHost struct {
	server, client *shell
	remote         *shell // on the server, in one SSH session of the client
	dir            string
}

func newDocHost(t *testing.T, dir string) *docHost {
	coverEtc(t)
	bootedBySystemd(t)
	offlineSystemctl(t)
	h := &docHost{dir: dir, server: newShell(t, dir, "bash", "--norc"), client: newShell(t, dir, "unshare", "-n", "bash", "--norc")}
	testutil.Veth(t, "eth0", "far", "192.0.2.1/24", "2001:db8::1/64")
	detach, err := testutil.AttachForeign("far") // the documents show a network card, which can send the answers of XDP
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { detach() })
	pid := strings.TrimSpace(h.client.must(t, "echo $$"))
	h.server.must(t, "ip link set far netns "+pid)
	h.client.must(t, "ip link set lo up; ip link set far addrgenmode none; ip link set far up; for a in 192.0.2.2/24 203.0.113.5/32 198.51.100.7/32; do ip addr add $a dev far; done")
	h.client.must(t, "ip route replace 192.0.2.1 dev far src 203.0.113.5")
	h.server.must(t, "ip route add default via 192.0.2.2; ip link set lo up; ip addr add 203.0.113.80/32 dev lo")
	if err := unix.Mount("tmpfs", "/etc/systemd/system", "tmpfs", 0, "mode=0755"); err != nil { // for apply --boot
		t.Fatalf("covering the units: %v", err)
	}
	h.server.must(t, "export SYSTEMD_OFFLINE=1")
	writeFile(t, "/proc/self/comm", "nginx") // the web server of this test
	var config net.ListenConfig
	config.SetMultipathTCP(false) // SYN protection cannot give connections to an MPTCP socket
	listener, err := config.Listen(t.Context(), "tcp", ":80")
	if err != nil {
		t.Fatal(err)
	}
	go http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if list, err := os.ReadFile(filepath.Join(dir, "www", filepath.Base(r.URL.Path))); err == nil {
			w.Write(list)
			return
		}
		w.Write([]byte("hello\n"))
	}))
	t.Cleanup(func() { listener.Close() })
	return h
}

// offlineSystemctl puts a systemctl first in the path that enables and disables units, and starts and stops none, because no systemd runs.
func offlineSystemctl(t *testing.T) {
	t.Helper()
	real, err := exec.LookPath("systemctl")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "systemctl"), "#!/bin/sh\ncase $1 in start|stop|restart|daemon-reload) exit 0; esac\n"+
		"for a; do shift; [ \"$a\" = --now ] || set -- \"$@\" \"$a\"; done\nexec "+real+" \"$@\"\n")
	sh(t, "chmod -R a+rX "+dir+"; chmod 755 "+dir+"/systemctl")
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// ssh starts an SSH server and opens a session of the client. From then on, commands of the server run in this session.
func (h *docHost) ssh(t *testing.T) {
	t.Helper()
	testutil.RequireTool(t, "dropbear")
	path := os.Getenv("PATH")
	// The user of this test is not in /etc/passwd, so root logs in. The key is written to /root, so this mount namespace must have a /root of its
	// own.
	if err := unix.Mount("tmpfs", "/root", "tmpfs", 0, "mode=0700,uid=0,gid=0"); err != nil {
		t.Fatalf("covering /root: %v", err)
	}
	for _, dir := range []string{"/sys/fs/bpf", "/var/lib", "/etc/systemd/system", "/run/floodwall"} { // of this namespace, too
		if err := os.Chown(dir, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	h.server.must(t, `set -e
mkdir keys
dropbearkey -t ed25519 -f keys/host >/dev/null && dropbearkey -t ed25519 -f keys/user | grep ^ssh- >keys/public
asroot='setpriv --reuid 0 --regid 0 --clear-groups'
$asroot sh -c 'umask 077; mkdir /root/.ssh; cat keys/public >/root/.ssh/authorized_keys'
cp "$(command -v dropbear)" keys/sshd
$asroot keys/sshd -F -E -s -r keys/host -p 22 2>keys/log &
echo $! >keys/pid
for i in $(seq 600); do ! ss -Hltn sport = :22 | grep -q . || break; sleep 0.05; done
set +e`)
	h.client.must(t, `ssh() { [ "$1" != -N ] || exec dbclient -y -i keys/user "$@" 2>/dev/null; host=$1; shift; dbclient -y -i keys/user "$host" "PATH=$PATH; $*" 2>/dev/null; }`)
	t.Cleanup(func() { exec.Command("sh", "-c", "kill $(cat "+h.dir+"/keys/pid)").Run() }) // sessions end with their connections
	h.remote = h.client.inner(t, "dbclient -y -i keys/user root@192.0.2.1 'cd "+h.dir+"; SYSTEMD_OFFLINE=1 PATH="+path+" exec bash --norc 2>&1'")
	h.remote.must(t, "true") // the message of the client about the server's key comes before
}

// run runs a command of a document on the host that its prompt names, and compares the output.
func (h *docHost) run(t *testing.T, c docCommand) {
	t.Helper()
	if c.command == "systemctl start floodwall" { // no systemd runs here
		h.server.must(t, "floodwall daemon >daemon.log 2>&1 & echo $! >daemon.pid")
		t.Cleanup(func() { exec.Command("sh", "-c", "kill $(cat "+h.dir+"/daemon.pid)").Run() })
		waitFor(t, "the daemon", func() bool { // systemd waits, too
			_, err := get(readSocket, "/v1/openapi.json")
			return err == nil
		})
	}
	if runElsewhere(c.command) {
		return
	}
	at := h.server
	switch {
	case c.prompt == "laptop":
		at = h.client
	case strings.HasPrefix(c.command, "ssh ") && h.remote == nil:
		h.ssh(t)
		return
	case h.remote != nil:
		at = h.remote
	}
	command := c.command
	if command == "floodwall on" {
		command = "printf 'y\\n\\n' | floodwall on"
	}
	got, status := at.run(t, command)
	got = strings.NewReplacer("[y/N] ", "[y/N] y\n", "goes back at once: ", "goes back at once: \n").Replace(got) // a terminal shows what was typed
	t.Logf("%s$ %s\n%s", c.prompt, c.command, got)
	if diff := c.differs(got); diff != "" {
		t.Errorf("%s: %s\n%s", c.at, c.command, diff)
	}
	if failed := status != 0; failed != c.fails {
		t.Errorf("%s: %s: exit status %d\n%s", c.at, c.command, status, got)
	}
}
