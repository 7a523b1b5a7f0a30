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

// pageAddress is where the page is unless another program listens there: the address that the documents use.
const pageAddress = "127.0.0.1:9810"

// page hands the daemon's page to browsers on this machine. Nothing of the machine's network changes: this process listens.
type page struct {
	address string // for a browser
	server  *http.Server
	daemon  *http.Transport
	served  chan struct{}
}

// servePage answers on the loopback address with what the daemon answers on its socket for reading, to all users of this machine. There
// is nothing of the machine in it.
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
	silent := log.New(io.Discard, "", 0) // a browser that went away is its own business
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { // Host stays: the daemon refuses those of other web pages
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
	_ = p.server.Close() // there is nothing to be done about an error
	<-p.served
	p.daemon.CloseIdleConnections()
}
