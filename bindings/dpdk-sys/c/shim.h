/* What Rust needs of DPDK: its headers, the field offsets of rte_mbuf, and real functions for its static inlines.
 *
 * Structures whose layout or spelling changed between 22.11 and 25.11 do not cross this border; their values do.
 */
#ifndef FLOODWAY_SHIM_H
#define FLOODWAY_SHIM_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <rte_config.h>
#include <rte_version.h>
#include <rte_bus.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_cycles.h>
#include <rte_dev.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#ifdef FLOODWAY_ACL
#include <rte_acl.h>
#endif

enum {
	SHIM_MBUF_BUF_ADDR = offsetof(struct rte_mbuf, buf_addr),
	SHIM_MBUF_DATA_OFF = offsetof(struct rte_mbuf, data_off),
	SHIM_MBUF_REFCNT = offsetof(struct rte_mbuf, refcnt),
	SHIM_MBUF_NB_SEGS = offsetof(struct rte_mbuf, nb_segs),
	SHIM_MBUF_PORT = offsetof(struct rte_mbuf, port),
	SHIM_MBUF_OL_FLAGS = offsetof(struct rte_mbuf, ol_flags),
	SHIM_MBUF_PKT_LEN = offsetof(struct rte_mbuf, pkt_len),
	SHIM_MBUF_DATA_LEN = offsetof(struct rte_mbuf, data_len),
	SHIM_MBUF_RSS_HASH = offsetof(struct rte_mbuf, hash.rss),
	SHIM_MBUF_BUF_LEN = offsetof(struct rte_mbuf, buf_len),
};

static const uint64_t SHIM_F_INDIRECT = RTE_MBUF_F_INDIRECT;
static const uint64_t SHIM_F_EXTERNAL = RTE_MBUF_F_EXTERNAL;
static const uint64_t SHIM_F_RX_RSS_HASH = RTE_MBUF_F_RX_RSS_HASH;
/* Spreads pairs of hosts over queues, by addresses alone; the port takes the part of it that it can do. */
static const uint64_t SHIM_RSS_ADDRESSES = RTE_ETH_RSS_IP;
/* By what is inside of tunnels. */
static const uint64_t SHIM_RSS_INNERMOST = RTE_ETH_RSS_LEVEL_INNERMOST;

/* Thread-local in the EAL library, behind macros. */
int shim_errno(void);
/* UINT32_MAX on a thread that is not registered. */
uint32_t shim_lcore_id(void);

uint64_t shim_rdtsc(void);

struct rte_mbuf *shim_pktmbuf_alloc(struct rte_mempool *pool);
/* All or nothing: 0, or a negative errno and `mbufs` untouched. */
int shim_pktmbuf_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **mbufs, uint32_t count);
void shim_pktmbuf_free(struct rte_mbuf *mbuf);
/* One more owner for every segment. */
void shim_pktmbuf_share(struct rte_mbuf *mbuf);
/* Owners of the external buffer of an mbuf that has RTE_MBUF_F_EXTERNAL. */
uint16_t shim_pktmbuf_external_refcnt(const struct rte_mbuf *mbuf);
/* 0, or -EOVERFLOW when there would be too many segments. */
int shim_pktmbuf_chain(struct rte_mbuf *head, struct rte_mbuf *tail);
/* Copies `len` bytes at `offset` over all segments to `out`; 0, or -EINVAL when the packet is shorter. */
int shim_pktmbuf_read(const struct rte_mbuf *mbuf, uint32_t offset, uint32_t len, void *out);

/* Bytes of one mbuf's buffer, headroom included. */
uint16_t shim_pktmbuf_room(struct rte_mempool *pool);
uint32_t shim_mempool_size(const struct rte_mempool *pool);
/* Mbufs in the pool itself, without those in lcores' caches (rte_mempool_ops_get_count is not exported). */
uint32_t shim_mempool_uncached(const struct rte_mempool *pool);
/* Gives what the calling lcore's cache holds back to the pool. */
void shim_mempool_flush_cache(struct rte_mempool *pool);

uint16_t shim_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t room);
uint16_t shim_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count);

/* Fills the port's redirection table of `len` entries with `table` over and over; 0 or a negative errno. */
int shim_rss_table(uint16_t port, uint16_t len, const uint16_t *table, uint16_t table_len);
/* Reads it back to `table`; 0 or a negative errno. */
int shim_rss_table_read(uint16_t port, uint16_t len, uint16_t *table);

/* Megabits per second (UINT32_MAX: unknown) and whether the link is up; 0 or a negative errno. */
int shim_link(uint16_t port, uint32_t *speed_mbps, int *up);
/* The name of the bus that the port's device sits on ("vdev", "pci"), or NULL. */
const char *shim_bus_name(uint16_t port);
/* The port that `devargs` describes (first one), or RTE_MAX_ETHPORTS. */
uint16_t shim_port_by_devargs(const char *devargs);

#endif
