// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/kernel/datapath"
)

// sampled reads samples of all packets, and returns the first arriving one for each UDP port.
func (s *plainScene) sampled(send func(), ports ...uint16) map[uint16]datapath.Sample {
	s.Helper()
	var running []*datapath.Generation
	err := s.server.Do(func() error {
		state, err := datapath.OpenState(s.Dir, false)
		if err != nil {
			return err
		}
		running, err = state.Running()
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
	defer datapath.CloseAll(running)
	samples, err := running[0].Traffic()
	if err != nil {
		s.Fatal(err)
	}
	defer samples.Close()
	if err := samples.SetShares(datapath.Shares{Arriving: math.MaxUint32, Leaving: math.MaxUint32}); err != nil {
		s.Fatal(err)
	}
	send()
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	found := map[uint16]datapath.Sample{}
	for len(found) < len(ports) {
		sample, err := samples.Read(ctx)
		if err != nil {
			s.Fatalf("%v; samples of ports: %v", err, found)
		}
		at := 14
		if len(sample.Frame) > 40 && binary.BigEndian.Uint16(sample.Frame[12:]) == 0x8100 {
			at += 4
		}
		if len(sample.Frame) < at+28 || sample.Frame[at] != 0x45 || sample.Frame[at+9] != unix.IPPROTO_UDP {
			continue
		}
		port := binary.BigEndian.Uint16(sample.Frame[at+22:])
		if _, again := found[port]; !again {
			sample.Frame = bytes.Clone(sample.Frame)
			found[port] = sample
		}
	}
	return found
}

// sampling is a policy whose daemon looks for attacks, for which it samples packets.
const sampling = "default: pass\ndetect: {baseline: learn}\n"

// TestSamplesInVLAN samples a packet whose VLAN tag is beside the frame, and a train of datagrams that the kernel has joined. The samples have the tag,
// and stand for each datagram.
func TestSamplesInVLAN(t *testing.T) {
	inPlainScene(t, func(s *plainScene) {
		const tpid = 0x0081 // 802.1Q in network byte order
		s.program(s.client, "server", ebpf.AttachTCXEgress, asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Imm(asm.R2, tpid), asm.Mov.Imm(asm.R3, 5), asm.FnSkbVlanPush.Call())
		s.filter(sampling)
		got := s.sampled(func() {
			s.sender(netip.AddrPortFrom(plain4, 9001)).Write(make([]byte, 100))
			train := s.sender(netip.AddrPortFrom(plain4, 9002))
			raw, _ := train.SyscallConn()
			raw.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT, 1000) })
			train.Write(make([]byte, 20*1000))
		}, 9001, 9002)
		if one := got[9001]; one.Length != 14+4+28+100 || binary.BigEndian.Uint16(one.Frame[14:]) != 5 || math.Round(one.Stands) != 1 || len(one.Frame) != datapath.SampleBytes {
			t.Errorf("one datagram: %+v", one)
		}
		if train := got[9002]; math.Round(train.Stands) != 20 || train.Length != 14+4+28+1000 || binary.BigEndian.Uint16(train.Frame[18+2:]) != 28+1000 || binary.BigEndian.Uint16(train.Frame[18+24:]) != 8+1000 {
			t.Errorf("a train of 20: %+v", train)
		}
	})
}

// TestSamplesOnTun samples packets of a device without Ethernet, in both directions. The samples have an Ethernet header.
func TestSamplesOnTun(t *testing.T) {
	inPlainScene(t, func(s *plainScene) {
		s.tunnel()
		s.device = "tun0"
		s.filter(sampling)
		got := s.sampled(func() {
			r := s.receiver(netip.MustParseAddrPort("10.7.0.2:9001"))
			s.sender(netip.MustParseAddrPort("10.7.0.2:9001")).Write(make([]byte, 20))
			r.SetReadDeadline(time.Now().Add(patience))
			if _, from, err := r.ReadFromUDPAddrPort(make([]byte, 100)); err != nil {
				t.Error(err)
			} else {
				r.WriteToUDPAddrPort(make([]byte, 30), netip.AddrPortFrom(from.Addr(), 9002))
			}
		}, 9001, 9002)
		for port, payload := range map[uint16]int{9001: 20, 9002: 30} {
			if one := got[port]; one.Length != 14+28+payload || len(one.Frame) != one.Length || fmt.Sprintf("%x", one.Frame[:14]) != "0000000000000000000000000800" {
				t.Errorf("port %d: %+v", port, one)
			}
		}
	})
}
