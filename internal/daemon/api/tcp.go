// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/os/periodic"
	"github.com/floodwall/floodwall/policy"
)

// settingsLook is how often the daemon's settings in the running policy are read.
const settingsLook = time.Second

// address is the address that the running policy sets for the API, and the server on it, if one runs.
type address struct {
	wanted policy.Daemon
	end    func()
	warned string // the last reported reason why no server runs
}

// follow serves the API on the TCP address in the running policy, until ctx ends. It changes the address when the policy changes. An error is
// reported as a warning, and follow tries again. The unix sockets continue to work.
func follow(ctx context.Context, settings func(context.Context) (policy.Daemon, error), a *Server) {
	var at address
	defer at.close()
	periodic.Run(ctx, settingsLook, func() {
		wanted, err := settings(ctx)
		if errors.Is(err, datapath.ErrNotLoaded) {
			wanted, err = policy.Daemon{}, nil
		}
		if err == nil {
			err = at.move(ctx, wanted, a)
		}
		at.warn(ctx, err, a)
	})
}

func (at *address) close() {
	if at.end != nil {
		at.end()
		at.end = nil
	}
}

// warn reports an error once, until another error or no error follows.
func (at *address) warn(ctx context.Context, err error, a *Server) {
	text := ""
	if err != nil && ctx.Err() == nil {
		text = operate.Problems(err)[0].String()
	}
	if text != "" && text != at.warned {
		a.Warn(text)
	}
	at.warned = text
}

// move starts a server on the address that the policy sets, and closes the previous server.
func (at *address) move(ctx context.Context, wanted policy.Daemon, a *Server) error {
	if at.wanted.Equal(wanted) && (at.end != nil || !wanted.Listen.IsValid()) {
		return nil
	}
	at.close()
	at.wanted = wanted
	if !wanted.Listen.IsValid() {
		return nil
	}
	l, err := listenTCP(wanted)
	if err != nil {
		return fmt.Errorf("listening on %s: %w", wanted.Listen, err)
	}
	from, guard := FromLoopback, func(h http.Handler) http.Handler { return ownHost(h, wanted.Listen.Addr()) }
	if wanted.TLS != nil {
		from, guard = FromRemote, func(h http.Handler) http.Handler { return h }
	}
	serving, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := serve(serving, l, guard(a.Handler(from))); err != nil {
			a.Warn(err.Error())
		}
	}()
	at.end = func() {
		cancel()
		<-ended
	}
	a.Note("serving the page and what can be read on " + wanted.Page())
	return nil
}

func listenTCP(d policy.Daemon) (net.Listener, error) {
	if d.TLS == nil && !d.Listen.Addr().IsLoopback() { // the policy's parser refuses such an address; this check is for a damaged manifest
		return nil, errors.New("this address can be reached from elsewhere, and needs tls")
	}
	var config *tls.Config
	if d.TLS != nil {
		var err error
		if config, err = tlsConfig(*d.TLS); err != nil {
			return nil, err
		}
	}
	l, err := net.Listen("tcp", d.Listen.String())
	if err != nil || config == nil {
		return l, err
	}
	return tls.NewListener(l, config), nil
}

// ownHost refuses requests whose header Host names another host. Otherwise a web page whose domain resolves to this host could read the answers (DNS
// rebinding).
func ownHost(h http.Handler, listen netip.Addr) http.Handler {
	same := http.NewCrossOriginProtection().Handler(h)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isOwn(r.Host, listen) {
			refuseHost(w, r, "ask by address, as http://127.0.0.1:9810, or for localhost")
			return
		}
		same.ServeHTTP(w, r)
	})
}

// noDomain refuses requests on a unix socket whose header Host names a domain. The reason is a tunnel, such as ssh -L, which makes the socket a port
// on a user's own host. There a web page could read the answers by DNS rebinding, as in ownHost. Programs send a host without a domain, such as
// http://floodwall/.
func noDomain(h http.Handler) http.Handler {
	same := http.NewCrossOriginProtection().Handler(h)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := hostName(r.Host)
		if _, err := netip.ParseAddr(name); err != nil && strings.Contains(strings.TrimSuffix(name, "."), ".") {
			refuseHost(w, r, "ask for a host without a domain, as http://floodwall/ or http://localhost/")
			return
		}
		same.ServeHTTP(w, r)
	})
}

func refuseHost(w http.ResponseWriter, r *http.Request, remedy string) {
	Refuse(w, r, &Error{Status: http.StatusMisdirectedRequest, Text: fmt.Sprintf("the request is for host %q", r.Host), Remedy: remedy})
}

// hostName returns the header Host without the port.
func hostName(host string) string {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.Trim(host, "[]")
	}
	return name
}

// isOwn reports whether the header Host names this host.
func isOwn(host string, listen netip.Addr) bool {
	name := hostName(host)
	if strings.EqualFold(name, "localhost") {
		return true
	}
	a, err := netip.ParseAddr(name)
	return err == nil && (a == listen || a.IsLoopback())
}
