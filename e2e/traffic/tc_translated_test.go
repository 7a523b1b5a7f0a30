// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"

	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/test/testutil"
)

// translated is the address that the server's packets get when they leave, as those of a pod do.
var translated = netip.MustParseAddr("10.1.0.77")

// replacing returns instructions for plainScene.program that replace an address of UDP packets over IPv4. at is the offset of the address in the IP
// header.
func replacing(at int32, from, to netip.Addr) asm.Instructions {
	const (
		ethernet, checksum, udpChecksum = 14, 14 + 10, 14 + 20 + 6
		pseudo                          = 0x10 | 4 // BPF_F_PSEUDO_HDR, four bytes
		protocol                        = 0x0008   // ETH_P_IP as read from memory
	)
	raw := func(a netip.Addr) int32 {
		b := a.As4()
		return int32(b[0]) | int32(b[1])<<8 | int32(b[2])<<16 | int32(b[3])<<24
	}
	replace := func(fn asm.BuiltinFunc, offset, flags int32) asm.Instructions {
		return asm.Instructions{
			asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Imm(asm.R2, offset), asm.Mov.Imm32(asm.R3, raw(from)), asm.Mov.Imm32(asm.R4, raw(to)),
			asm.Mov.Imm(asm.R5, flags), fn.Call(),
		}
	}
	load := func(offset, length int32) asm.Instructions {
		return asm.Instructions{
			asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Imm(asm.R2, offset), asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, -8), asm.Mov.Imm(asm.R4, length),
			asm.Mov.Imm(asm.R5, 0), asm.StoreMem(asm.RFP, -8, asm.R5, asm.DWord), asm.FnSkbLoadBytes.Call(), asm.JNE.Imm(asm.R0, 0, "end"), asm.LoadMem(asm.R0, asm.RFP, -8, asm.Word),
		}
	}
	var code asm.Instructions
	code = append(code, load(12, 2)...)
	code = append(code, asm.JNE.Imm(asm.R0, protocol, "end"))
	code = append(code, load(ethernet+9, 1)...)
	code = append(code, asm.JNE.Imm(asm.R0, 17, "end"))
	code = append(code, load(ethernet+at, 4)...)
	code = append(code, asm.JNE.Imm32(asm.R0, raw(from), "end"))
	code = append(code, replace(asm.FnL4CsumReplace, udpChecksum, pseudo)...)
	code = append(code, replace(asm.FnL3CsumReplace, checksum, 4)...)
	return append(code,
		asm.StoreImm(asm.RFP, -8, int64(raw(to)), asm.Word),
		asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Imm(asm.R2, ethernet+at), asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, -8), asm.Mov.Imm(asm.R4, 4),
		asm.Mov.Imm(asm.R5, 0), asm.FnSkbStoreBytes.Call(),
		asm.Mov.Reg(asm.R6, asm.R6).WithSymbol("end"), // does nothing
	)
}

// translate attaches programs of another tool to the server's device, by links of TCX at the end of both hooks. They replace the server's address in
// packets that leave, and put it back in packets that enter.
func (s *plainScene) translate() {
	s.Helper()
	s.program(s.server, s.device, ebpf.AttachTCXEgress, replacing(12, plain4, translated)...)
	s.program(s.server, s.device, ebpf.AttachTCXIngress, replacing(16, translated, plain4)...)
}

// asks makes the server ask the client, and returns the client's view of the server's address. The answer must arrive if want is true.
func (s *plainScene) asks(when string, want bool) {
	s.Helper()
	var question, answer net.PacketConn
	err := s.client.Do(func() (err error) { answer, err = net.ListenPacket("udp4", "10.1.0.1:7"); return err })
	if err == nil {
		defer answer.Close()
		err = s.server.Do(func() (err error) { question, err = net.ListenPacket("udp4", "10.1.0.2:0"); return err })
	}
	if err != nil {
		s.Fatal(err)
	}
	defer question.Close()
	if _, err := question.WriteTo([]byte("hello"), &net.UDPAddr{IP: net.IPv4(10, 1, 0, 1), Port: 7}); err != nil {
		s.Fatal(err)
	}
	text, from, came := testutil.Receive(s, answer.(*net.UDPConn), patience)
	if !came {
		s.Fatalf("%s: the question did not arrive", when)
	}
	if from.Addr().Unmap() != translated {
		s.Errorf("%s: the question came from %s", when, from)
	}
	if _, err := answer.WriteTo(text, net.UDPAddrFromAddrPort(from)); err != nil {
		s.Fatal(err)
	}
	wait := 500 * time.Millisecond
	if want {
		wait = patience
	}
	if came := testutil.Arrives(s, question.(*net.UDPConn), wait); came != want {
		s.Errorf("%s: the answer arrived: %t", when, came)
	}
}

// TestTranslatedAtTC changes the server's address at tc, as network plugins of Kubernetes do, before and after Floodwall's programs are attached. An
// answer to the changed address must arrive although the default drops.
func TestTranslatedAtTC(t *testing.T) {
	for _, mode := range []datapath.Mode{datapath.TC, datapath.Native} {
		for _, first := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, plugin first %t", mode, first), func(t *testing.T) {
				inPlainScene(t, func(s *plainScene) {
					s.neighbour()
					if first {
						s.translate()
					}
					s.filterIn(mode, "default: drop\n")
					if !first {
						s.translate()
						s.asks("before the repair", false)
						s.repair()
					}
					s.asks("in order", true)
				})
			})
		}
	}
}

// neighbour tells the client where the changed address is.
func (s *plainScene) neighbour() {
	s.Helper()
	var mac net.HardwareAddr
	err := s.server.Do(func() error {
		dev, err := netlink.LinkByName(s.device)
		if err == nil {
			mac = dev.Attrs().HardwareAddr
		}
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
	s.on(s.client, fmt.Sprintf("ip neigh replace %s lladdr %s dev %s", translated, mac, s.end.Name))
}

// repair restores what is missing of the policy.
func (s *plainScene) repair() {
	s.Helper()
	if err := s.server.Do(func() error { _, err := s.Repair(s.ctx); return err }); err != nil {
		s.Fatal(err)
	}
}
