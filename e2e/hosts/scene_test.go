// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/test/testutil"
)

// scene is a host of the table with its surroundings.
type scene struct {
	*testing.T
	host   host
	dir    string
	places map[string]*testutil.Elsewhere
	on     string    // the name of the target, once there is one
	enter  []string  // the command that runs another command on the host
	lib    string    // shell functions: a command for each place, and cable
	heard  *sync.Map // texts that listeners have received
	filter string    // the command that removes Floodwall's rules from saved ones, if apply says that they must be removed
}

// newScene makes a host of the table, with its surroundings.
func newScene(t *testing.T, h host) *scene {
	t.Helper()
	s := &scene{T: t, host: h, dir: t.TempDir(), places: map[string]*testutil.Elsewhere{}, heard: new(sync.Map)}
	s.places["host"] = s.enterHost()
	for _, name := range append([]string{"out"}, strings.Fields(h.places)...) {
		s.places[name] = testutil.NewElsewhere(t)
	}
	var lib strings.Builder
	fmt.Fprintf(&lib, "saved=%s/saved\n", s.dir)
	for name, p := range s.places {
		enter := "nsenter --net=" + p.Path()
		if name == "host" {
			enter = strings.Join(quoted(s.enter), " ")
		}
		fmt.Fprintf(&lib, "%s() { %s \"$@\"; }\n%s=%s\n", name, enter, name, p.Path())
	}
	s.lib = lib.String() + `
cable() { # PLACE DEVICE PLACE DEVICE
	ip link add to-$1-$2 netns ${!3} type veth peer name $2 netns ${!1}
	$3 ip link set to-$1-$2 name $4; $3 ip link set $4 up; $1 ip link set $2 up
}
`
	for name := range s.places {
		s.sh(name + " ip link set lo up")
	}
	s.sh(base)
	s.makeTunnels()
	s.sh(h.rules)
	s.listen(baseServes + ";" + h.serves)
	return s
}

// moved replaces addresses for documentation by public addresses if the row needs that.
func (s *scene) moved(text string) string {
	if !s.host.public {
		return text
	}
	return strings.NewReplacer("192.0.2.", "9.9.9.", "203.0.113.", "8.8.8.", "198.51.100.", "1.1.1.", "2001:db8:", "2620:fe:").Replace(text)
}

// quoted quotes words for the shell.
func quoted(words []string) (list []string) {
	for _, w := range words {
		list = append(list, "'"+w+"'")
	}
	return list
}

// enterHost makes the namespaces of the host. If the host has the same namespaces as the test, it makes none.
func (s *scene) enterHost() *testutil.Elsewhere {
	s.Helper()
	if s.host.enter == "" {
		return testutil.Enter(s, "/proc/self/ns/net")
	}
	words := append(strings.Fields(s.host.enter), "sh", "-c", "mount -t sysfs sysfs /sys; echo made; exec sleep 3600")
	cmd := exec.Command(words[0], words[1:]...)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = testutil.Start(cmd)
	}
	if err == nil {
		_, err = fmt.Fscanln(out, new(string))
	}
	if err != nil {
		s.Fatalf("%s: %v", s.host.enter, err)
	}
	s.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	// A process that enters a mount namespace starts at the root directory, so it must change to the directory of the test.
	s.enter = []string{"nsenter", fmt.Sprintf("--target=%d", cmd.Process.Pid), "--user", "--net", "--mount", "--preserve-credentials", "--",
		"sh", "-c", `cd "$0" && exec "$@"`, s.dir}
	return testutil.Enter(s, fmt.Sprintf("/proc/%d/ns/net", cmd.Process.Pid))
}

// sh runs a script that must succeed, and returns its output.
func (s *scene) sh(script string) string {
	s.Helper()
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", s.lib+"without() { "+cmp.Or(s.filter, "cat")+"; }\n"+s.moved(script))
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		s.Fatalf("%s: %v\n%s%s", script, err, out, said.Bytes())
	}
	return string(out)
}

// run runs a command on the host.
func (s *scene) run(words ...string) (string, error) {
	cmd := s.command(words...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (s *scene) command(words ...string) *exec.Cmd {
	words = append(s.enter[:len(s.enter):len(s.enter)], words...)
	for i := range words {
		words[i] = s.moved(words[i])
	}
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), s.moved("SSH_CONNECTION=192.0.2.9 50000 192.0.2.1 22"), "SYSTEMD_OFFLINE=1")
	return cmd
}

// floodwall runs the floodwall command, which must succeed. It returns the output.
func (s *scene) floodwall(args ...string) string {
	s.Helper()
	out, err := s.run(append([]string{program}, args...)...)
	if err != nil {
		s.Fatalf("floodwall %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// listen opens the sockets of a list such as "host tcp/22 udp/53; out tcp/80". TCP and UDP sockets return the data that they receive. UDP and raw
// sockets record this data. Raw sockets and sockets of multicast groups do not answer.
func (s *scene) listen(list string) {
	s.Helper()
	for part := range strings.SplitSeq(list, ";") {
		words := strings.Fields(part)
		if len(words) == 0 {
			continue
		}
		for _, w := range words[1:] {
			proto, at, _ := strings.Cut(w, "/")
			var err error
			s.places[words[0]].Do(func() { err = s.listener(proto, at) })
			if err != nil {
				s.Fatalf("listening at %s of %s: %v", w, words[0], err)
			}
		}
	}
}

func (s *scene) listener(proto, at string) error {
	number, group, _ := strings.Cut(at, "@")
	if proto == "tcp" {
		lc := net.ListenConfig{}
		lc.SetMultipathTCP(false) // as most servers: only Go uses it by default
		l, err := lc.Listen(context.Background(), "tcp", ":"+number)
		if err == nil {
			testutil.Serve(s, l, func(c net.Conn) { io.Copy(c, c) })
		}
		return err
	}
	network, address := "udp", ":"+number
	if proto == "raw" {
		network, address = "ip4:"+number, "0.0.0.0"
	}
	c, err := new(net.ListenConfig).ListenPacket(context.Background(), network, address)
	if err != nil {
		return err
	}
	s.Cleanup(func() { c.Close() })
	if group != "" {
		err = join(c, group)
	}
	if u, ok := c.(*net.UDPConn); ok && group == "" {
		return errors.Join(err, s.echo(u))
	}
	go func() {
		for data := make([]byte, 1<<16); ; {
			n, _, err := c.ReadFrom(data)
			if err != nil {
				return
			}
			s.heard.Store(string(data[:n]), true)
		}
	}()
	return err
}

// echo returns datagrams from the address to which they were sent, because the host may have several addresses. A control message of ip(7) or ipv6(7)
// contains this address. The same message sets the address for the answer. echo clears the device in the message, so that the routes select the
// device.
func (s *scene) echo(c *net.UDPConn) error {
	if err := option(c, unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1); err != nil {
		return err
	}
	go func() {
		for data, about := make([]byte, 1<<16), make([]byte, 64); ; {
			n, m, _, from, err := c.ReadMsgUDPAddrPort(data, about)
			if err != nil {
				return
			}
			s.heard.Store(string(data[:n]), true)
			if device := unix.CmsgLen(net.IPv6len); m >= device+4 {
				clear(about[device : device+4])
			}
			c.WriteMsgUDPAddrPort(data[:n], about[:m], from)
		}
	}()
	return nil
}

func (s *scene) hasHeard(text string) bool {
	_, ok := s.heard.Load(text)
	return ok
}

// join makes a socket a member of an IPv4 multicast group, on the device that the routes select.
func join(c net.PacketConn, group string) error {
	return control(c, func(fd int) error {
		return unix.SetsockoptIPMreq(fd, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP, &unix.IPMreq{Multiaddr: [4]byte(net.ParseIP(group).To4())})
	})
}

func option(c any, level, name, value int) error {
	return control(c, func(fd int) error { return unix.SetsockoptInt(fd, level, name, value) })
}

func control(c any, set func(fd int) error) error {
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		return err
	}
	var done error
	err = raw.Control(func(fd uintptr) { done = set(int(fd)) })
	return errors.Join(err, done)
}

// write writes a file in the host's directory.
func (s *scene) write(name, text string) {
	s.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o644); err != nil {
		s.Fatal(err)
	}
}
