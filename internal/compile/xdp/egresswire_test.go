// SPDX-License-Identifier: Apache-2.0

package xdp_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/compile/image"
	xdpgen "github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// elsewhere is the namespace of the clients.
type elsewhere struct{ *testutil.Elsewhere }

func ipCommand(t testing.TB, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			t.Errorf("ip %s: %v: %s", line, err, out)
		}
	}
}

// The addresses of the server, and of clients in the namespace on the other side of the cable.
const (
	server4, server6 = "192.0.2.53", "2001:db8:53::53"
	client, nearby   = "198.51.100.7", "198.51.100.8" // of one /24
	distant          = "203.0.113.7"
	client6, nearby6 = "2001:db8:1::7", "2001:db8:1::8" // of one /64
	distant6         = "2001:db8:2::7"
)

// serving makes the server's device fw0 and its clients, and a resolver that answers queries: over UDP with size bytes, and over TCP.
func serving(t *testing.T, size int) elsewhere {
	t.Helper()
	clients := elsewhere{testutil.NewElsewhere(t)}
	testutil.Veth(t, "fw0", "fw1", server4+"/32", server6+"/128")
	clients.Take(t, "fw1")
	clients.Do(func() {
		ipCommand(t, "link set lo up", "link set fw1 up")
		for _, a := range []string{client, nearby, distant, client6, nearby6, distant6} {
			ipCommand(t, "addr add "+netip.MustParseAddr(a).String()+" dev fw1 nodad")
		}
		ipCommand(t, "route add default dev fw1", "-6 route add default dev fw1")
	})
	testutil.WaitUp(t, "fw0")
	ipCommand(t, "route add default dev fw0", "-6 route add default dev fw0")
	acquaint(t, clients)
	resolve(t, size)
	return clients
}

// acquaint adds permanent neighbour entries on both sides. Entries that the kernel resolves share one limit with the neighbours of all tests that
// flood (net/core/neighbour.c, gc_thresh3). Permanent entries have no limit.
func acquaint(t testing.TB, clients elsewhere) {
	t.Helper()
	address := func(device string) (mac string) {
		dev, err := net.InterfaceByName(device)
		if err != nil {
			t.Errorf("device %s: %v", device, err)
			return ""
		}
		return dev.HardwareAddr.String()
	}
	know := func(mac, device string, addresses ...string) {
		for _, a := range addresses {
			ipCommand(t, fmt.Sprintf("neigh replace %s lladdr %s dev %s nud permanent", netip.MustParseAddr(a), mac, device))
		}
	}
	server, peer := address("fw0"), ""
	clients.Do(func() {
		peer = address("fw1")
		know(server, "fw1", server4, server6)
	})
	know(peer, "fw0", client, nearby, distant, client6, nearby6, distant6)
}

func resolve(t *testing.T, size int) {
	t.Helper()
	for _, at := range []string{address(server4, 53), address(server6, 53)} {
		udp, err := net.ListenPacket("udp", at)
		if err != nil {
			t.Fatal(err)
		}
		tcp, err := net.Listen("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { udp.Close(); tcp.Close() })
		go func() {
			query := make([]byte, 1500)
			for {
				_, from, err := udp.ReadFrom(query)
				if err != nil {
					return
				}
				udp.WriteTo(make([]byte, size), from) // the sender gets an error if the guard drops the response
			}
		}()
		testutil.Serve(t, tcp, func(c net.Conn) { io.Copy(c, io.LimitReader(c, 2)) })
	}
}

func serverOf(client string) string {
	if netip.MustParseAddr(client).Is4() {
		return address(server4, 53)
	}
	return address(server6, 53)
}

// queryMessage returns the DNS message of a query.
func queryMessage(t testing.TB) []byte {
	t.Helper()
	frame := subject.FramesOf(t, "udp 192.0.2.1:1 > 192.0.2.2:53 dns=A,example.com")[0].Frame
	return packet.Decode(frame).Payload
}

// ask sends queries, and fails the test if the number of answers is wrong. It waits until there are want answers, and then a little longer for an
// unwanted one.
func (n elsewhere) ask(t testing.TB, client string, queries, want int) {
	t.Helper()
	answered := 0
	message := queryMessage(t)
	n.Do(func() {
		dialer := net.Dialer{LocalAddr: &net.UDPAddr{IP: netip.MustParseAddr(client).AsSlice()}}
		c, err := dialer.Dial("udp", serverOf(client))
		if err != nil {
			t.Errorf("client %s: %v", client, err)
			return
		}
		defer c.Close()
		for range queries {
			if _, err := c.Write(message); err != nil {
				t.Errorf("client %s: %v", client, err)
			}
		}
		answer := make([]byte, 65536)
		for answered < queries {
			patience := time.Minute
			if answered >= want {
				patience = 100 * time.Millisecond
			}
			c.SetReadDeadline(time.Now().Add(patience))
			if _, err = c.Read(answer); err != nil {
				break
			}
			answered++
		}
		if err != nil && !os.IsTimeout(err) {
			t.Errorf("client %s: %v", client, err)
		}
	})
	if answered != want {
		t.Errorf("%s: %d answers to %d queries, want %d", client, answered, queries, want)
	}
}

// askTCP sends a query of a client over TCP, and reads the answer.
func (n elsewhere) askTCP(t testing.TB, client string) {
	t.Helper()
	n.Do(func() {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: netip.MustParseAddr(client).AsSlice()}, Timeout: time.Minute}
		c, err := dialer.Dial("tcp", serverOf(client))
		if err != nil {
			t.Errorf("client %s: %v", client, err)
			return
		}
		defer c.Close()
		if _, err := c.Write([]byte("ab")); err != nil {
			t.Error(err)
		}
		if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, []byte("ab")) {
			t.Errorf("client %s is answered %q, %v", client, got, err)
		}
	})
}

// enforce installs a program on fw0, and closes all references of this process to it.
func enforce(t *testing.T, program *ir.Program, mode datapath.Mode, verified bool) {
	t.Helper()
	x, err := xdpgen.Generate(program, xdpgen.Options{QuestionKey: subject.QuestionKey})
	if err != nil {
		t.Fatal(err)
	}
	withState(t, func(s *datapath.State) error {
		var from datapath.Inherited
		if verified {
			if from.Verified, err = s.Verified(); err != nil {
				return err
			}
			defer from.Verified.Close()
		}
		p, err := datapath.LoadAfter(&x.Image, from)
		if err != nil {
			return err
		}
		defer p.Close()
		_, err = s.Install(p, nil, []datapath.Attachment{{Device: "fw0", Mode: mode}}, time.Time{})
		return err
	})
}

func withState(t *testing.T, do func(*datapath.State) error) {
	t.Helper()
	s, err := datapath.OpenState(datapath.DefaultDir, true)
	if err != nil {
		t.Fatal(err)
	}
	unlock, err := s.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if err := do(s); err != nil {
		t.Fatal(err)
	}
}

// counted returns the number of packets that the running program has counted in a slot.
func counted(t *testing.T, slot uint32) (n uint64) {
	t.Helper()
	withState(t, func(s *datapath.State) error {
		m, err := s.Counters()
		if err != nil {
			return err
		}
		defer m.Close()
		all, err := datapath.ReadCounters(m, slot+1)
		n = all[slot].Packets
		return err
	})
	return n
}

// Slots of the programs of the tests here: a rule, then a guard.
const (
	slotVerified  = image.SlotRules
	slotResponses = image.SlotRules + 1
)

// TestResponsesOnWire checks the responses of a resolver to clients. Each network must get the burst, over IPv4 and IPv6, as whole datagrams or in
// fragments, in both modes of XDP.
func TestResponsesOnWire(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	for _, size := range []int{1000, 4000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) { responsesOnWire(t, size) })
	}
}

func responsesOnWire(t *testing.T, size int) {
	const burst = 10
	clients := serving(t, size)
	defer ipCommand(t, "link del fw0")
	program := guarding(ir.Guard{}, perNet(burst*uint64(size+28)))
	program.Default = ir.Pass
	mode := map[int]datapath.Mode{1000: datapath.Native, 4000: datapath.Generic}[size]
	enforce(t, program, mode, false)
	for _, test := range []struct {
		client            string
		queries, answered int
	}{
		{client, 6, 6}, {nearby, 6, 4}, {client, 2, 0}, {distant, 3, 3},
		{client6, 12, 9}, {nearby6, 2, 0}, {distant6, 3, 3}, // the header is 20 bytes longer
	} {
		clients.ask(t, test.client, test.queries, test.answered)
	}
	if got := counted(t, slotResponses); got != 2+2+3+2 {
		t.Errorf("%d responses counted, want 9", got)
	}
	clients.askTCP(t, client)
	program.Guards[0].Observe = true
	enforce(t, program, mode, false)
	clients.ask(t, client, burst+2, burst+2)
	withState(t, (*datapath.State).Unload)
	clients.ask(t, nearby, burst+2, burst+2)
}

// TestVerifiedOnWire sends queries of clients over TCP. Their later queries over UDP must count as those of verified clients, even after another
// policy is applied.
func TestVerifiedOnWire(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	clients := serving(t, 100)
	program := guarding(ir.Guard{Verify: time.Hour})
	program.Default = ir.Pass
	enforce(t, program, datapath.Native, false)
	verified := func(when string, want map[string]bool) {
		t.Helper()
		for c, want := range want {
			before := counted(t, slotVerified)
			clients.ask(t, c, 1, 1)
			if got := counted(t, slotVerified) > before; got != want {
				t.Errorf("%s: %s: verified is %t", when, c, got)
			}
		}
	}
	verified("before", map[string]bool{client: false, client6: false, nearby6: false})
	clients.askTCP(t, client)
	clients.askTCP(t, client6)
	after := map[string]bool{client: true, nearby: false, client6: true, nearby6: true, distant: false, distant6: false}
	verified("after TCP", after)
	enforce(t, program, datapath.Native, true)
	verified("applied again", after)
	enforce(t, program, datapath.Native, false)
	verified("started again", map[string]bool{client: false})
}
