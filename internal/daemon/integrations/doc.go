// Package integrations joins the daemon to programs of others: it writes events to systemd's journal and to a webhook,
// and bans whom CrowdSec and Suricata name. It decides no ban by itself.
package integrations
