// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/model/ranges"
	"github.com/floodwall/floodwall/internal/os/sockets"
)

// IPVS is the Table of the virtual services of IPVS.
const IPVS = "IPVS"

// virtualServices lists the virtual services of IPVS, the load balancer of the kernel, in this network namespace. It has neither sockets nor rules.
func virtualServices() ([]Translation, error) {
	text, err := os.ReadFile(sockets.ProcFile("ip_vs"))
	if errors.Is(err, fs.ErrNotExist) { // the module is not loaded
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("virtual services of IPVS: %w", err)
	}
	return readVirtualServices(string(text)), nil
}

// readVirtualServices reads /proc/net/ip_vs (ip_vs_info_seq_show of net/netfilter/ipvs/ip_vs_ctl.c). A virtual service has a line, and each of its
// servers a line after it.
func readVirtualServices(text string) (list []Translation) {
	protos := map[string]uint8{"TCP": unix.IPPROTO_TCP, "UDP": unix.IPPROTO_UDP, "SCTP": unix.IPPROTO_SCTP}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		at, known := virtualAddress(words[1])
		service := Translation{Proto: protos[words[0]], Table: IPVS, Rule: words[0] + " " + words[1]}
		if known {
			service.Rule = words[0] + " " + at.String()
		}
		switch {
		case words[0] == "->":
			if known && list != nil {
				last := &list[len(list)-1]
				last.To = append(last.To, at.String())
			}
			continue
		case words[0] == "FWM": // a mark, which rules give to packets
			service.Open = true
		case service.Proto == 0 || !known: // the head of the table
			continue
		case at.Port() == 0, service.Proto == unix.IPPROTO_SCTP: // a policy has no ports of SCTP
			service.Open, service.For = true, netip.PrefixFrom(at.Addr(), at.Addr().BitLen())
		default:
			service.Ports, service.For = ranges.Of(uint32(at.Port())), netip.PrefixFrom(at.Addr(), at.Addr().BitLen())
		}
		list = append(list, service)
	}
	return list
}

// virtualAddress reads C0000201:0050 or [2001:0db8:…]:0050.
func virtualAddress(text string) (at netip.AddrPort, ok bool) {
	i := strings.LastIndexByte(text, ':')
	if i < 0 {
		return at, false
	}
	port, err := strconv.ParseUint(text[i+1:], 16, 16)
	if err != nil {
		return at, false
	}
	if inner, six := strings.CutPrefix(text[:i], "["); six {
		a, err := netip.ParseAddr(strings.TrimSuffix(inner, "]"))
		return netip.AddrPortFrom(a, uint16(port)), err == nil
	}
	four, err := hex.DecodeString(text[:i])
	a, ok := netip.AddrFromSlice(four)
	return netip.AddrPortFrom(a, uint16(port)), ok && err == nil
}
