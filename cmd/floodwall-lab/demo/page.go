// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"time"
)

// pageAddress is the address of the page. The documents name this address. If another program listens there, the page gets another address.
const pageAddress = "127.0.0.1:9810"

// page serves the daemon's page to browsers on this machine. The socket belongs to this process, so the network of the machine does not change.
type page struct {
	address string // for a browser
	server  *http.Server
	daemon  *http.Transport
	served  chan struct{}
}

// servePage forwards requests from a loopback address to the daemon's read socket. All users of this machine can send such requests. The page has no
// information about the machine.
func servePage(socket string) (*page, error) {
	l, err := net.Listen("tcp", pageAddress)
	if err != nil {
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		return nil, fmt.Errorf("the daemon's page: %w", err)
	}
	daemon := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}}
	silent := log.New(io.Discard, "", 0) // a browser that goes away is no error
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { // Host stays, as the daemon refuses those of other web pages
			r.Out.URL.Scheme, r.Out.URL.Host = "http", "floodwall"
		},
		Transport: daemon,
		ErrorLog:  silent,
	}
	p := &page{address: fmt.Sprintf("http://%s/", l.Addr()), daemon: daemon, served: make(chan struct{})}
	p.server = &http.Server{Handler: proxy, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute, ErrorLog: silent}
	go func() {
		defer close(p.served)
		_ = p.server.Serve(l) // until close
	}()
	return p, nil
}

func (p *page) close() {
	_ = p.server.Close() // nothing can be done about an error
	<-p.served
	p.daemon.CloseIdleConnections()
}
