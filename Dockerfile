# thumbd's image: a slim Debian with the one program in it. Untried: no container engine was at hand.

FROM rust:1.95-slim-bookworm AS build
WORKDIR /build
COPY . .
RUN cargo build --locked --profile dist --bin thumbd

FROM debian:bookworm-slim
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --no-create-home --shell /usr/sbin/nologin thumbd
COPY --from=build /build/target/dist/thumbd /usr/local/bin/thumbd
COPY LICENSE-MIT LICENSE-APACHE /usr/share/doc/thumbd/
USER thumbd
ENV THUMBD_LISTEN=0.0.0.0:7468
EXPOSE 7468
# bash can speak TCP by itself, so the image needs no curl.
HEALTHCHECK --interval=5s --timeout=3s --start-period=30s --retries=3 \
    CMD ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/7468 && printf 'GET /healthz HTTP/1.0\\r\\nHost: localhost\\r\\n\\r\\n' >&3 && read -r line <&3 && [[ $line == *' 200 '* ]]"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["thumbd"]
CMD ["serve"]
