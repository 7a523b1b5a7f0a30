// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/floodwall/floodwall/internal/fleet/wire"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// startWait is how long the server may take to listen.
const startWait = 30 * time.Second

// startServer starts the embedded NATS server.
func startServer(c *Config, auth server.Authentication) (*server.Server, error) {
	o := &server.Options{
		ServerName: c.Name, NoSigs: true, NoLog: true,
		JetStream: true, StoreDir: filepath.Join(c.dir, storeDir), SyncAlways: !c.Fast, JetStreamMaxStore: 2 * c.space().all, // checkDisk has checked that the disk has this space
		CustomClientAuthentication: auth, AlwaysEnableNonce: true,
		MaxPayload: wire.MaxMessage, MaxControlLine: 4096, MaxConn: 16384, MaxSubs: 64,
		WriteDeadline: 5 * time.Second, AuthTimeout: 5, TLSTimeout: 5, PingInterval: 20 * time.Second, MaxPingsOut: 2,
		DontListen: c.Plain,
	}
	if err := c.listen(o); err != nil {
		return nil, err
	}
	if !c.Plain {
		free, err := net.Listen("tcp", c.self().Nodes) // tests the address, because the server does not report why it cannot listen
		if err != nil {
			return nil, wording.Hinted(fmt.Sprintf("the hub cannot listen: %v", err),
				"see whether another process has the port, and whether the host has the address of `floodwall-hub init`")
		}
		free.Close()
	}
	s, err := server.NewServer(o)
	if err != nil {
		return nil, fmt.Errorf("NATS server: %w", err)
	}
	s.Start()
	if !s.ReadyForConnections(startWait) {
		s.Shutdown()
		return nil, wording.Hinted(fmt.Sprintf("the NATS server does not listen on %s", c.self().Nodes),
			"see whether another process has the port, and whether the host has the address")
	}
	return s, nil
}

// listen sets the addresses on which the server listens.
func (c *Config) listen(o *server.Options) (err error) {
	self := c.self()
	if o.Host, o.Port, err = splitAddress(self.Nodes); err != nil {
		return err
	}
	if len(c.Hubs) > 1 {
		o.Cluster.Name, o.Cluster.NoAdvertise = "floodwall", true
		if o.Cluster.Host, o.Cluster.Port, err = splitAddress(self.Cluster); err != nil {
			return err
		}
		for _, p := range c.Hubs {
			if p.Name != c.Name {
				o.Routes = append(o.Routes, &url.URL{Scheme: "nats-route", Host: p.Cluster})
			}
		}
	}
	if c.Plain {
		return nil
	}
	nodes, hubs, err := c.tls()
	if err != nil {
		return err
	}
	o.TLSConfig, o.TLS = nodes, true
	if len(c.Hubs) > 1 {
		o.Cluster.TLSConfig, o.Cluster.TLSTimeout = hubs, 5
	}
	return nil
}

func splitAddress(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	if err != nil {
		return "", 0, fmt.Errorf("address %q of a hub: %w", address, err)
	}
	return host, port, nil
}
