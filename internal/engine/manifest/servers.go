// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"errors"
	"fmt"
	"strings"

	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// The values that SYN-ACKs announce when no server has answered: the MSS of Ethernet, and the window scale of a kernel with default buffers.
var (
	usualMSS    = [2]uint16{1460, 1440}
	usualWScale = uint8(7)
)

// errNoServer says that no server of the service is known, with the remedy.
var errNoServer = errors.New("no server of it is known; say `backends`, or apply again once there are connections")

// fromServers returns the options that SYN-ACKs for a service behind this host announce. These are the values of the policy, or else the values that
// all servers that answered support. An option that a server does not support would break connections to that server. note says which values are
// announced when some servers have not answered. It is "" when all have answered.
func fromServers(s *ir.Protection, m ir.CookieMethod, servers facts.Servers) (f ir.Handshake, note string) {
	f.Method = m
	Announce(s, &f, servers.Survey)
	switch {
	case servers.Many:
		return f, usualNote(s.Service, &f, facts.ErrTooMany)
	case !servers.Known:
		return f, usualNote(s.Service, &f, errNoServer)
	}
	return f, silentNote(s.Service, &f, servers.Survey)
}

// usualNote returns a note on the values that are announced when the servers are not known. why says why they are not known.
func usualNote(service string, f *ir.Handshake, why error) string {
	return fmt.Sprintf("service %q: SYN-ACKs announce what is usual (%s): %v", service, announced(f), why)
}

// silentNote returns a note of one line on the servers that have not answered and the consequence. It returns "" when all have answered.
func silentNote(service string, f *ir.Handshake, s facts.SurveyServers) string {
	if s.Silent == nil {
		return ""
	}
	var names []string
	for _, server := range s.Silent {
		names = append(names, server.String())
	}
	whose := "what the others have"
	if s.Answered == nil {
		whose = "what is usual"
	}
	return fmt.Sprintf("service %q: SYN-ACKs announce %s (%s), as %s did not answer: apply again when they do, or `floodwall doctor` compares them",
		service, whose, announced(f), strings.Join(names, ", "))
}

// announced describes the options that SYN-ACKs announce.
func announced(f *ir.Handshake) string {
	words := []string{fmt.Sprintf("MSS %d in IPv4 and %d in IPv6", f.MSS[0], f.MSS[1])}
	for bit, name := range OptionNames {
		switch {
		case f.Options>>bit&1 == 0:
		case ir.TCPOptions(1<<bit) == ir.WindowScaling:
			words = append(words, fmt.Sprintf("%s %d", name, f.WScale))
		default:
			words = append(words, name)
		}
	}
	return strings.Join(words, ", ")
}

// Announce sets the announced options of f from the options of the servers and the values of the policy.
func Announce(s *ir.Protection, f *ir.Handshake, all facts.SurveyServers) {
	f.MSS, f.WScale, f.Options = usualMSS, usualWScale, ir.WindowScaling|ir.SACK|ir.Timestamps
	if all.Answered != nil {
		f.Options = optionsOf(all)
		f.WScale = uint8(max(all.WScale, 0))
	}
	for family, mss := range all.MSS {
		if mss > 0 {
			f.MSS[family] = mss
		}
	}
	if s.MSS > 0 {
		f.MSS = [2]uint16{s.MSS, s.MSS}
	}
	if s.WScale >= 0 && f.Options&ir.WindowScaling != 0 {
		f.WScale = uint8(s.WScale)
	}
}

func optionsOf(all facts.SurveyServers) (o ir.TCPOptions) {
	for option, does := range map[ir.TCPOptions]bool{
		ir.WindowScaling: all.WScale >= 0, ir.SACK: all.SACK, ir.Timestamps: all.Timestamps, ir.ECN: all.ECN,
	} {
		if does {
			o |= option
		}
	}
	return o
}
