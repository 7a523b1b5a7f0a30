// SPDX-License-Identifier: Apache-2.0

package facts_test

import (
	"fmt"
	"testing"

	"github.com/floodwall/floodwall/internal/host/facts"
)

func TestSessions(t *testing.T) {
	for _, c := range []struct{ variable, want string }{
		{"203.0.113.5 50000 192.0.2.1 22", "[{203.0.113.5:50000 192.0.2.1:22}]"},
		{"2001:db8::5 50000 2001:db8::1 2222", "[{[2001:db8::5]:50000 [2001:db8::1]:2222}]"},
		{"::ffff:203.0.113.5 50000 ::ffff:192.0.2.1 22", "[{203.0.113.5:50000 192.0.2.1:22}]"},
		{"fe80::5%eth0 50000 fe80::1%eth0 22", "[{[fe80::5]:50000 [fe80::1]:22}]"},
	} {
		t.Setenv("SSH_CONNECTION", c.variable)
		sessions := facts.Sessions() // no such connection is open, so logins to the machine of this test may come first
		if got := fmt.Sprint(sessions[len(sessions)-1:]); got != c.want {
			t.Errorf("%s: got %s, want %s", c.variable, got, c.want)
		}
	}
}
