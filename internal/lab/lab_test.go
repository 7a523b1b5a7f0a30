// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/floodwall/floodwall/test/testutil"
	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// objects contains the things that a lab has in the kernel.
type objects struct {
	Threads  []int // of NAPI
	Programs []ebpf.ProgramID
}

// busyLab fills a lab with everything that can be left behind.
func busyLab(l *Lab) (o objects, p pair, err error) {
	if p, err = connectPair(l, plainLink); err != nil {
		return o, p, err
	}
	sink, err := l.NewSink(p.b, CaptureDrop)
	if err != nil {
		return o, p, err
	}
	second := plain
	second.Size = 100
	source, err := l.NewSource(p.a, SourceOptions{Flows: []Flow{plain, second}, Rate: 1000})
	if err != nil {
		return o, p, err
	}
	if _, err := l.NewServer(p.b.Host, netip.MustParseAddrPort("10.0.0.2:80"), []byte("file")); err != nil {
		return o, p, err
	}
	o.Threads = []int{p.a.napi, p.b.napi}
	for _, prog := range []*ebpf.Program{
		sink.Program, source.generator.Program, source.flows[0].Program, source.flows[1].Program,
	} {
		info, err := prog.Info()
		if err != nil {
			return o, p, err
		}
		id, _ := info.ID()
		o.Programs = append(o.Programs, id)
	}
	return o, p, nil
}

// left returns the objects that still exist.
func (o objects) left() (left []string) {
	for _, pid := range o.Threads {
		if comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err == nil && strings.HasPrefix(string(comm), "napi/") {
			left = append(left, strings.TrimSpace(string(comm)))
		}
	}
	for _, id := range o.Programs {
		if p, err := ebpf.NewProgramFromID(id); err == nil {
			left = append(left, p.String())
			p.Close()
		}
	}
	return left
}

// witness is a namespace outside the lab with one end of a veth pair. When the namespace with the other end is
// destroyed, so is this end.
type witness struct{ host *Host }

func newWitness(t *testing.T) witness {
	t.Helper()
	h, err := newHost("witness", (*Host).enterNew)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.close() })
	return witness{h}
}

// watch puts the other end of a pair in a host of the lab. It takes the witness as a descriptor, for other processes.
func watch(fd int, h *Host, name string) error {
	file, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return err
	}
	defer file.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	return (&Host{Name: "witness", ns: file}).Do(func() error {
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "watched", PeerNamespace: netlink.NsFd(h.ns.Fd())})
	})
}

// alive returns the names of the namespaces under watch that exist.
func (w witness) alive(t *testing.T) (names []string) {
	t.Helper()
	links, err := w.host.links.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if name := l.Attrs().Name; name != "lo" {
			names = append(names, name)
		}
	}
	return names
}

func ownLinks(t *testing.T) (names []string) {
	t.Helper()
	devices, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range devices {
		names = append(names, d.Name)
	}
	return names
}

// checkGone waits until the lab's namespaces and their contents no longer exist.
func checkGone(t *testing.T, w witness, o objects) {
	t.Helper()
	await(t, "all namespaces are gone", func() bool { return len(w.alive(t)) == 0 })
	await(t, fmt.Sprintf("all objects are gone: %v", o.left()), func() bool { return len(o.left()) == 0 })
}

func TestClose(t *testing.T) {
	testutil.RequireRoot(t)
	before, w := ownLinks(t), newWitness(t)
	l, err := New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	o, p, err := busyLab(l)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range []*Host{p.a.Host, p.b.Host} {
		if err := watch(int(w.host.ns.Fd()), h, h.Name); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.alive(t); len(got) != 2 || len(o.left()) != 6 {
		t.Fatalf("before Close: namespaces %v, objects %v; want 2 and 6", got, o.left())
	}
	for range 2 {
		if err := l.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	checkGone(t, w, o)
	if diff := cmp.Diff(before, ownLinks(t)); diff != "" {
		t.Errorf("devices of this namespace (-before +after):\n%s", diff)
	}
	if err := p.a.Host.Do(func() error { return nil }); err == nil {
		t.Error("Do in a closed host: no error")
	}
}

// TestFailedSetup causes an error after each part of a lab was built.
func TestFailedSetup(t *testing.T) {
	testutil.RequireRoot(t)
	for _, tt := range []struct {
		name string
		end  EndOptions
		want string
	}{
		{"device name", EndOptions{Name: "sixteen-letters!"}, "new veth pair"},
		{"address", EndOptions{Name: "other", Addrs: ParseAddrs("10.0.0.1/24 10.0.0.1/24")}, "address 10.0.0.1/24: file exists"},
		{"cpu", EndOptions{Name: "other", CPU: OnCPU(1000)}, "to CPU 1000: this machine has no such CPU"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWitness(t)
			var threads objects
			err := Run(t.Context(), func(_ context.Context, l *Lab) error {
				a, err := l.Host("a")
				if err != nil {
					return err
				}
				b, err := l.Host("b")
				if err != nil {
					return err
				}
				if err := watch(int(w.host.ns.Fd()), a, "a"); err != nil {
					return err
				}
				da, _, err := l.Connect(a, b, LinkOptions{})
				if err != nil {
					return err
				}
				threads.Threads = []int{da.napi, da.Peer.napi}
				_, _, err = l.Connect(a, b, LinkOptions{A: EndOptions{Name: "second"}, B: tt.end})
				return err
			})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v, want %q in it", err, tt.want)
			}
			checkGone(t, w, threads)
		})
	}
}

// TestMain runs the tests or, in the processes that TestKill and TestSignal start, a lab that waits for its end.
func TestMain(m *testing.M) {
	Roles(nil)
	if os.Getenv("LAB_TEST_CHILD") == "" {
		os.Exit(m.Run())
	}
	fmt.Printf("ended %v\n", Run(context.Background(), child))
}

// child builds a lab, lets the witness on descriptor 3 watch it, and floods until its context ends.
func child(ctx context.Context, l *Lab) error {
	o, p, err := busyLab(l)
	if err != nil {
		return err
	}
	for _, h := range []*Host{p.a.Host, p.b.Host} {
		if err := watch(3, h, h.Name); err != nil {
			return err
		}
	}
	flood, err := l.NewSource(p.a, SourceOptions{Flows: []Flow{plain}})
	if err != nil {
		return err
	}
	line, err := json.Marshal(o)
	if err != nil {
		return err
	}
	fmt.Printf("ready %s\n", line)
	return flood.Run(ctx)
}

// startChild starts a process with a lab, and returns when its lab stands.
func startChild(t *testing.T, w witness) (*exec.Cmd, *bufio.Scanner, objects) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "LAB_TEST_CHILD=1")
	cmd.ExtraFiles = []*os.File{w.host.ns}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if line, ok := strings.CutPrefix(lines.Text(), "ready "); ok {
			var o objects
			if err := json.Unmarshal([]byte(line), &o); err != nil {
				t.Fatal(err)
			}
			if len(w.alive(t)) != 2 || len(o.left()) != 6 {
				t.Fatalf("child has namespaces %v, objects %v; want 2 and 6", w.alive(t), o.left())
			}
			return cmd, lines, o
		}
		t.Logf("child: %s", lines.Text())
	}
	t.Fatal("child ended before its lab stood")
	return nil, nil, objects{}
}

func TestKill(t *testing.T) {
	testutil.RequireRoot(t)
	w := newWitness(t)
	cmd, _, o := startChild(t, w)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	checkGone(t, w, o)
}

// TestSignal checks that a lab is removed in order when its process gets a signal to end.
func TestSignal(t *testing.T) {
	testutil.RequireRoot(t)
	for _, signal := range []os.Signal{unix.SIGINT, unix.SIGTERM} {
		t.Run(signal.String(), func(t *testing.T) {
			w := newWitness(t)
			cmd, lines, o := startChild(t, w)
			if err := cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			ended := ""
			for lines.Scan() {
				if line, ok := strings.CutPrefix(lines.Text(), "ended "); ok {
					ended = line
				}
			}
			if ended != "<nil>" {
				t.Errorf("child ended with %q, want no error", ended)
			}
			checkGone(t, w, o)
		})
	}
}

func TestDo(t *testing.T) {
	p := newPair(t)
	before := ownLinks(t)
	failure := errors.New("failure")
	err := p.a.Host.Do(func() error {
		if diff := cmp.Diff([]string{"lo", "right"}, ownLinks(t)); diff != "" {
			t.Errorf("devices of left (-want +got):\n%s", diff)
		}
		err := p.b.Host.Do(func() error {
			if diff := cmp.Diff([]string{"lo", "left"}, ownLinks(t)); diff != "" {
				t.Errorf("devices of right (-want +got):\n%s", diff)
			}
			return failure
		})
		if diff := cmp.Diff([]string{"lo", "right"}, ownLinks(t)); diff != "" {
			t.Errorf("devices of left, after Do in right (-want +got):\n%s", diff)
		}
		return err
	})
	if !errors.Is(err, failure) {
		t.Errorf("got error %v, want %v", err, failure)
	}
	if diff := cmp.Diff(before, ownLinks(t)); diff != "" {
		t.Errorf("devices after Do (-before +after):\n%s", diff)
	}
}

// TestQuiet checks that a link transports only the packets that the lab sends.
func TestQuiet(t *testing.T) {
	p := newPair(t)
	sink := p.sink(t, p.b, CaptureDrop)
	p.send(t, SourceOptions{Flows: []Flow{plain}, Rate: 200, Count: 200})
	for i, frame := range frames(t, sink, 200) {
		if _, err := describe(frame, &plain); err != nil || frame[12] != 8 || frame[13] != 0 || frame[23] != byte(UDP) {
			t.Fatalf("frame %d is not from the source: %x", i, frame)
		}
	}
	if taken, refused := received(t, p.b); taken != 200 || refused != 0 {
		t.Errorf("received %d frames and refused %d, want 200 and 0", taken, refused)
	}
}

// TestRouter sends through a host that forwards, in both families.
func TestRouter(t *testing.T) {
	testutil.RequireRoot(t)
	err := Run(t.Context(), func(ctx context.Context, l *Lab) error {
		client, router, server, err := threeHosts(l)
		if err != nil {
			return err
		}
		for _, to := range []string{"10.0.2.2:80", "[fd02::2]:80"} {
			addr := netip.MustParseAddrPort(to)
			if _, err := l.NewServer(server, addr, []byte("far")); err != nil {
				return err
			}
			if _, err := Load(ctx, LoadOptions{Host: client, Server: addr, Requests: 1, Timeout: patience}); err != nil {
				return err
			}
			sum, err := Load(ctx, LoadOptions{Host: client, Server: addr, Requests: 3, Timeout: patience})
			if err != nil || sum.OK != 3 {
				t.Errorf("to %s through %s: %+v, %v; want 3 answers", to, router.Name, sum, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func threeHosts(l *Lab) (client, router, server *Host, err error) {
	var hosts [3]*Host
	for i, name := range []string{"client", "router", "server"} {
		if hosts[i], err = l.Host(name); err != nil {
			return nil, nil, nil, err
		}
	}
	client, router, server = hosts[0], hosts[1], hosts[2]
	near, _, err := l.Connect(client, router, LinkOptions{
		A: EndOptions{Addrs: ParseAddrs("10.0.1.2/24 fd01::2/64")}, B: EndOptions{Addrs: ParseAddrs("10.0.1.1/24 fd01::1/64")},
	})
	if err != nil {
		return nil, nil, nil, err
	}
	_, far, err := l.Connect(router, server, LinkOptions{
		A: EndOptions{Addrs: ParseAddrs("10.0.2.1/24 fd02::1/64")}, B: EndOptions{Addrs: ParseAddrs("10.0.2.2/24 fd02::2/64")},
	})
	if err != nil {
		return nil, nil, nil, err
	}
	return client, router, server, errors.Join(
		router.Router(),
		client.Route(netip.MustParsePrefix("0.0.0.0/0"), netip.MustParseAddr("10.0.1.1"), near),
		client.Route(netip.MustParsePrefix("::/0"), netip.MustParseAddr("fd01::1"), near),
		server.Route(netip.MustParsePrefix("0.0.0.0/0"), netip.MustParseAddr("10.0.2.1"), far),
		server.Route(netip.MustParsePrefix("::/0"), netip.MustParseAddr("fd02::1"), far),
	)
}
