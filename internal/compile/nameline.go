// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
)

// namesOf parses a line of a list of domain names, in one of the usual formats: a single name, a hosts file, a response policy zone (RPZ), the rule
// ||name^ of ad blockers, and lines of dnsmasq and unbound. It returns an error for a line that does not block a name, for example an exception.
func namesOf(line string) ([]string, error) {
	line = strings.TrimSpace(line)
	for _, mark := range []string{"##", "#@#", "#?#", "#$#"} {
		if i := strings.Index(line, mark); i >= 0 && (i == 0 || line[i-1] > ' ') && line[0] != '#' {
			return nil, errors.New("a filter of elements of a page, which says nothing of a name: leave it out")
		}
	}
	if i := strings.IndexAny(line, "#;"); i >= 0 && !strings.Contains(line, "/#") { // dnsmasq: address=/name/#
		line = line[:i]
	}
	words := strings.Fields(line)
	switch {
	case len(words) == 0 || strings.ContainsAny(line[:1], "!["): // a comment or the header in a list of an ad blocker
		return nil, nil
	case strings.HasPrefix(line, "@@"):
		return nil, errors.New("an exception of ad blockers: leave it out, and give the name a rule of its own before the list")
	case strings.HasPrefix(line, "||"):
		name, ok := strings.CutSuffix(line[2:], "^")
		if !ok {
			return nil, errors.New("a rule of ad blockers that depends on more than the name: write ||name^ or the name")
		}
		return []string{name}, nil
	case strings.Contains(words[0], "=/"):
		return dnsmasqNames(words[0])
	case strings.HasSuffix(words[0], ":"):
		return unboundNames(words)
	case strings.ContainsAny(line[:1], "$@") || slices.Contains(words, "SOA") || slices.Contains(words, "NS"): // the header of a zone
		return nil, nil
	}
	if a, err := netip.ParseAddr(words[0]); err == nil && len(words) > 1 {
		return hostsNames(a, words[1:])
	}
	if i := slices.IndexFunc(words, func(w string) bool { return strings.EqualFold(w, "CNAME") }); i > 0 {
		return zoneNames(words[0], words[i+1:])
	}
	return words[:1], nil
}

// isNowhere reports whether lists use an address for the names that they block.
func isNowhere(a netip.Addr) bool { return a.IsUnspecified() || a.IsLoopback() }

func hostsNames(a netip.Addr, names []string) (listed []string, err error) {
	if !isNowhere(a) {
		return nil, errors.New("a line of a hosts file that gives a name the address " + a.String() + ": leave it out, or write the name alone")
	}
	for _, name := range names {
		_, err := netip.ParseAddr(name)
		if err != nil && strings.Contains(name, ".") && !strings.HasPrefix(name, "localhost.") { // the rest of the line has names of this host
			listed = append(listed, name)
		}
	}
	return listed, nil
}

func zoneNames(name string, target []string) ([]string, error) {
	if len(target) != 1 || !slices.Contains([]string{".", "*.", "rpz-drop."}, target[0]) {
		return nil, errors.New("an exception or a redirection of a response policy zone: leave it out, and give the name a rule of its own before the list")
	}
	return []string{strings.TrimPrefix(name, "*.")}, nil
}

// dnsmasqNames parses address=/name/…/ and local=/name/. For these names, dnsmasq answers that they do not exist, or gives an unroutable address.
func dnsmasqNames(word string) ([]string, error) {
	parts := strings.Split(word, "/")
	key, names, value := parts[0], parts[1:len(parts)-1], parts[len(parts)-1]
	a, err := netip.ParseAddr(value)
	nowhere := value == "" || value == "#" || err == nil && isNowhere(a)
	if !nowhere || len(names) == 0 || !slices.Contains([]string{"address=", "local=", "server="}, key) || key == "server=" && value != "" {
		return nil, errors.New("a line of dnsmasq that does not block a name: leave it out, or write the name alone")
	}
	return names, nil
}

// unboundNames parses local-zone: "name" TYPE, and local-data: "name A 0.0.0.0".
func unboundNames(words []string) ([]string, error) {
	rest := strings.Fields(strings.ReplaceAll(strings.Join(words[1:], " "), `"`, " "))
	switch {
	case words[0] == "server:" && len(rest) == 0:
		return nil, nil
	case words[0] == "local-zone:" && len(rest) == 2:
		if slices.Contains([]string{"deny", "refuse", "static", "redirect", "always_refuse", "always_nxdomain", "always_nodata", "always_null", "always_deny"}, rest[1]) {
			return rest[:1], nil
		}
	case words[0] == "local-data:" && len(rest) > 2:
		if a, err := netip.ParseAddr(rest[len(rest)-1]); err == nil && isNowhere(a) {
			return rest[:1], nil
		}
	}
	return nil, errors.New("a line of unbound that does not block a name: leave it out, or write the name alone")
}
